"""SIGTERM and Ctrl-C: a cluster, or somebody, wants the machine back, and asks first.

A step of the training is finished first. What changes nothing, such as captioning the validation
split, is left at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Preempted(SystemExit):
    """Raised where the program was asked to leave; uncaught, it ends it with code 143, or 130 after
    Ctrl-C, as shells count them: 128 + the signal.
    """

    def __init__(self, by: int = signal.SIGTERM) -> None:
        super().__init__(128 + by)


class Preemption:
    """Whether somebody has asked; looked at between two steps."""

    def __init__(self) -> None:
        self.asked = False
        self.by: int = signal.SIGTERM
        self._at_once = False

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Within it, SIGTERM and the first Ctrl-C ask and do not kill. Python hears signals in its
        main thread alone; in others nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(each, self._hear) for each in signals]
        try:
            yield
        finally:
            for each, handler in zip(signals, before, strict=True):
                signal.signal(each, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within it, being asked raises :class:`Preempted`; for what may stop anywhere."""
        self._at_once = True
        try:
            if self.asked:
                raise Preempted(self.by)
            yield
        finally:
            self._at_once = False

    def _hear(self, by: int, _frame: FrameType | None) -> None:
        self.asked, self.by = True, by
        if by == signal.SIGINT:  # whoever asks again does not want to wait
            signal.signal(by, signal.default_int_handler)
        if self._at_once:
            self._at_once = False
            raise Preempted(by)
