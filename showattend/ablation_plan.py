"""The plan of an ablation: which settings are held against which, on one budget.

A plan is a YAML file: a base config, overrides that hold for all rows, seeds, and rows, each with
the overrides that are its own. Every row and seed is a run, in a folder of its own.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from showattend.config import ConfigError, Settings, checked, read_settings, read_tree

_SEED = "train.seed"
#: What makes two rows no longer comparable, besides the data.
_BUDGET = ("train.epochs", "train.captions_per_image", "train.patience", "train.select_on")


class AblateError(ValueError):
    """A plan cannot be carried out: one clear line."""


def slug(name: str) -> str:
    """A row's name as a part of a folder's: "Soft, additive" is "soft-additive"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _apart(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    """The rows, each of which has a folder's name that no other has."""
    seen: dict[str, str] = {}
    for name in rows:
        if not slug(name):
            raise ValueError(f"row {name!r}: its name has no letter or digit to name a folder by")
        if slug(name) in seen:
            raise ValueError(
                f"row {name!r}: would have the folder of {seen[slug(name)]!r}, {slug(name)}; "
                "rename one"
            )
        seen[slug(name)] = name
    return rows


def _once(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds {seeds}: one is there twice; name every seed once")
    return seeds


Seed = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]


class Plan(BaseModel):
    """What the plan's file says; see configs/ablate_flickr8k.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: A config, as seen from the plan's folder.
    base: Path
    #: ``section.key=value`` of all rows: the budget and the data.
    overrides: list[str] = []
    seeds: Annotated[list[Seed], Field(min_length=1), AfterValidator(_once)] = [1]
    #: Name -> ``section.key=value`` of that row alone; the others are held against the first.
    rows: Annotated[dict[str, list[str]], Field(min_length=1), AfterValidator(_apart)]


@dataclass(frozen=True)
class Job:
    """One run: a row with a seed.

    Attributes:
        row: the row's name; ``place`` its number, from 0.
        folder: the run directory.
        settings: all of them.
    """

    row: str
    place: int
    seed: int
    folder: Path
    settings: Settings


@dataclass(frozen=True)
class Ablation:
    """A plan with all its settings known to be valid.

    Attributes:
        path: the plan's file.
        overrides: those of all rows: the plan's, and behind them the command line's.
        common: the settings that rows start from; the first seed's.
        jobs: every run, row by row.
    """

    path: Path
    plan: Plan
    overrides: Sequence[str]
    common: Settings
    jobs: Sequence[Job]


def read_plan(path: Path) -> Plan:
    """Read the file; whether the settings in it exist is found out by `plan_runs`.

    Raises:
        ConfigError: one line naming the file, the key and what was expected.
    """
    return checked(Plan, read_tree(path, "keys such as `base:` and `rows:`"), str(path))


def plan_runs(path: Path, words: Sequence[str], folder: Path) -> Ablation:
    """All runs of a plan.

    Args:
        words: ``section.key=value`` for all rows, laid over the plan's own overrides.
        folder: where the run directories lie, or will.
    Raises:
        ConfigError, AblateError: the plan or a row's settings are wrong; one line.
    """
    plan = read_plan(path)
    base, overrides = path.parent / plan.base, [*plan.overrides, *words]
    for override in [*overrides, *(each for own in plan.rows.values() for each in own)]:
        if override.partition("=")[0].strip() == _SEED:
            raise AblateError(f"{path}: {override}: seeds are named by the plan's `seeds`")
    common = read_settings(base, [*overrides, f"{_SEED}={plan.seeds[0]}"])
    jobs = []
    for place, (row, own) in enumerate(plan.rows.items()):
        for seed in plan.seeds:
            try:
                settings = read_settings(base, [*overrides, *own, f"{_SEED}={seed}"])
            except ConfigError as error:
                raise ConfigError(f"{path}: row {row!r}: {error}") from None
            _check_budget(f"{path}: row {row!r}", settings, common)
            jobs.append(Job(row, place, seed, folder / f"{slug(row)}-seed{seed}", settings))
    return Ablation(path, plan, overrides, common, jobs)


def take_part(jobs: Sequence[Job], part: int, parts: int) -> list[Job]:
    """One part's jobs, 0 <= part < parts: row i, with all its seeds, goes to part i mod parts."""
    return [job for job in jobs if job.place % parts == part]


def differences(ours: Settings, theirs: Settings) -> list[tuple[str, Any, Any]]:
    """(key, our value, their value) wherever two settings differ, in the settings' order."""
    mine, other = flat_settings(ours), flat_settings(theirs)
    keys = dict.fromkeys([*mine, *other])
    return [(key, mine.get(key), other.get(key)) for key in keys if mine.get(key) != other.get(key)]


def flat_settings(settings: Settings) -> dict[str, Any]:
    """``section.key`` -> value, as a YAML file has it, in the settings' order."""
    return dict(_flat(settings.model_dump(mode="json")))


def _flat(tree: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _check_budget(origin: str, settings: Settings, common: Settings) -> None:
    """A row with more data or time than the others would be held against them unfairly."""
    for key, _, _ in differences(settings, common):
        if key.startswith("data.") or key in _BUDGET:
            raise AblateError(
                f"{origin}: changes {key}, which is the same for all rows; put it in `overrides`"
            )
