"""The order of the modules: the data flows one way, and so do the imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "showattend"

#: A module imports from lower levels only.
LEVELS = [
    {"config"},
    {
        "images",
        "tokenizer",
        "attention",
        "channel_attention",
        "losses",
        "shapes",
        "whole_files",
        "nouns",
        "data_urls",
        "epochs",
        "items",
        "archives",
        "unzip",
        "download",
        "ranks",
        "preemption",
        "crops",
    },
    {"obtain"},
    {"insertion", "scores", "self_attention", "curves", "tars"},
    {"vocabulary", "corpus", "encoder", "overlay", "ablation_plan"},
    {"cells", "datasets", "results", "matrix"},
    {"decoder", "regions", "grid_store", "ahead"},
    {"recurrent", "transformer", "steering"},
    {"captioner", "boxes", "metrics", "references", "java_metrics"},
    {
        "search",
        "checkpoint",
        "grids",
        "batches",
        "diversity",
        "bootstrap",
        "pointing",
        "reinforce",
        "self_critical",
        "cider_reward",
        "channels",
    },
    {"box_overlay", "hub"},
    {
        "predict",
        "grounding",
        "mentions",
        "supervision",
        "files",
        "report",
        "page",
        "paired",
        "gaze",
        "records",
    },
    {"evaluate", "tables", "compare_page", "lesson", "scale", "onnx_export"},
    {"train", "scorecard", "sides"},
    {"compare", "ablate"},
    {"app.models", "app.uploads", "app.upload_room", "runs"},
    {"app.shared", "app.reading", "runs_page"},
    {"app.viewer"},
    {"app.downloads", "app.api", "app.steer_tab"},
    {"app.caption_tab", "app.compare_tab", "app.batch_tab", "app.runs_tab"},
    {"app.page"},
    {"app.server"},
    {"cli", "ablation_table"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}

#: Libraries that are known to these modules alone.
FENCES = {
    "gradio": {
        "app.__init__",
        "app.uploads",
        "app.shared",
        "app.viewer",
        "app.downloads",
        "app.api",
        "app.caption_tab",
        "app.compare_tab",
        "app.steer_tab",
        "app.batch_tab",
        "app.runs_tab",
        "app.page",
        "app.server",
    },
    "timm": {"encoder", "insertion"},
    "torchvision": {"encoder", "insertion"},
    "nltk": {"metrics"},
    "pycocoevalcap": {"metrics"},
    "pycocotools": {"datasets"},
    "safetensors": {"checkpoint", "train"},
    "matplotlib": {"overlay", "curves", "matrix"},
    "h5py": {"regions"},
    "httpx": {"download"},
    "accelerate": {"ranks"},
    "pyarrow": {"records"},
    "huggingface_hub": {"hub", "predict"},
}

#: Modules with imports inside of functions, and what they import there.
LAZY = {
    "__init__": {"showattend.predict"},  # `showattend --help` must not wait for torch
    "overlay": {"matplotlib"},  # nor those who draw nothing for matplotlib
    "curves": {"matplotlib"},
    "matrix": {"matplotlib"},
    "regions": {"h5py"},  # an extra: those with .npz files need it not
    "ranks": {"accelerate"},  # who trains alone need not wait for it
    "records": {"pyarrow"},  # an extra: JSONL needs nothing more
    "app.__init__": {"gradio"},  # within what keeps it from writing stubs
    "cli": {"*"},  # each command loads what it needs
}

#: Names within the package, such as "search" and "app.page".
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")
)


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))


def imported(statement: ast.stmt) -> Iterator[str]:
    """Full names of the modules that an import statement asks for."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, "imports are absolute"
        assert statement.module is not None
        if statement.module == "showattend":  # from showattend import search
            yield from (f"showattend.{alias.name}" for alias in statement.names)
        else:
            yield statement.module


@cache
def all_imports(name: str) -> set[str]:
    statements = (node for node in ast.walk(parsed(name)) if isinstance(node, ast.stmt))
    return {module for statement in statements for module in imported(statement)}


def inner_imports(name: str) -> set[str]:
    """What is not imported by a plain statement of the module itself."""
    outer = parsed(name).body
    inner = (
        node
        for statement in outer
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt) and node not in outer
    )
    return {module for statement in inner for module in imported(statement)}


def own_modules(names: set[str]) -> set[str]:
    """The package's modules among some imports; the bare package, which holds the version, is not
    one of them."""
    inner = {name.partition(".")[2] for name in names if name.partition(".")[0] == "showattend"}
    return inner - {""}


def test_every_module_has_a_level() -> None:
    assert {name for name in MODULES if not name.endswith("__init__")} <= LEVEL.keys()
    assert sum(map(len, LEVELS)) == len(LEVEL)


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__init__")])
def test_a_module_imports_from_lower_levels_only(name: str) -> None:
    for other in own_modules(all_imports(name)) - {"__version__"}:
        assert LEVEL[other] < LEVEL[name], f"{name} must not import {other}"


@pytest.mark.parametrize("name", MODULES)
def test_imports_stand_at_the_top(name: str) -> None:
    allowed = LAZY.get(name, set())
    for module in inner_imports(name):
        assert "*" in allowed or module in allowed or module.split(".")[0] in allowed, (
            f"{name} imports {module} inside of a function"
        )


@pytest.mark.parametrize("name", MODULES)
def test_libraries_stay_behind_their_fences(name: str) -> None:
    for module in all_imports(name):
        allowed = FENCES.get(module.split(".")[0])
        assert allowed is None or name in allowed, f"{name} must not import {module}"


def test_the_walk_sees_what_it_should() -> None:
    """A test that sees no import would pass whatever the code does."""
    assert {"showattend.config", "torch"} <= all_imports("captioner")
    assert "showattend" in all_imports("checkpoint")
    assert own_modules(all_imports("search")) == {
        "attention",
        "captioner",
        "config",
        "decoder",
        "steering",
        "tokenizer",
        "vocabulary",
    }
    assert "matplotlib" in inner_imports("overlay")
    assert inner_imports("search") == set()
    for library, modules in FENCES.items():
        if library != "pycocoevalcap":  # of the tests alone
            users = {
                name for name in MODULES for m in all_imports(name) if m.split(".")[0] == library
            }
            assert users == modules & set(MODULES), library
