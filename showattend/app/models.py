"""The models that the page offers."""

import threading
from collections.abc import Sequence
from pathlib import Path

from showattend.checkpoint import CheckpointError
from showattend.predict import CaptionModel, load


class Models:
    """Models by name, the first one preselected; each is loaded once, when first asked for.

    Args:
        names: shipped names or checkpoint folders.
    Raises:
        CheckpointError: there is none; one line.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise CheckpointError("no model to serve: name a checkpoint folder")
        self.names = list(dict.fromkeys(names))
        self._loaded: dict[str, CaptionModel] = {}
        self._loading = threading.Lock()

    @property
    def pair(self) -> list[str]:
        """Whom the page compares unasked: soft and hard, else the first two."""
        known = ["soft", "hard"]
        return known if set(known) <= set(self.names) else self.names[:2]

    def title(self, name: str) -> str:
        """The last part of a folder's name, where no other model has the same."""
        short = Path(name).name
        alike = [other for other in self.names if Path(other).name == short]
        return short if len(alike) == 1 else name

    def get(self, name: str) -> CaptionModel:
        """The model of that name.

        Raises:
            CheckpointError: the page does not offer it, or its folder is missing or damaged; one
                line.
        """
        if name not in self.names:  # a request may name any folder of this machine
            raise CheckpointError(f"{name}: not among the models of this page")
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = load(name)
            return self._loaded[name]
