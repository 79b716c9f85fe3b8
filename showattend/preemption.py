"""SIGTERM: a cluster wants its machine back, and asks before it takes it.

A step of the training is finished first. What changes nothing, such as captioning the validation
split, is left at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: As shells count it: 128 + the signal.
PREEMPTED = 128 + signal.SIGTERM


class Preempted(SystemExit):
    """Raised where the program was asked to leave; uncaught, it ends it with code 143."""

    def __init__(self) -> None:
        super().__init__(PREEMPTED)


class Preemption:
    """Whether somebody has asked; looked at between two steps."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Within it, SIGTERM asks and does not kill. Python hears signals in its main thread alone;
        in others nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._hear)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within it, being asked raises :class:`Preempted`; for what may stop anywhere."""
        self._at_once = True
        try:
            if self.asked:
                raise Preempted
            yield
        finally:
            self._at_once = False

    def _hear(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self._at_once:
            self._at_once = False
            raise Preempted
