"""SIGTERM and Ctrl-C are heard, and what comes of it."""

import os
import signal
import threading

import pytest

from showattend.preemption import Preempted, Preemption


def ask() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_it_asks_and_does_not_kill() -> None:
    before, preemption = signal.getsignal(signal.SIGTERM), Preemption()
    with preemption.heeded():
        assert not preemption.asked
        ask()
        assert preemption.asked
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_may_stop_anywhere_stops_at_once() -> None:
    preemption, done = Preemption(), []
    with preemption.heeded():
        with pytest.raises(Preempted) as caught, preemption.at_once():
            ask()
            done.append("more")
        assert caught.value.code == 143
        ask()  # beyond it, only noted
        with pytest.raises(Preempted), preemption.at_once():
            done.append("anything")
    assert done == []


def test_it_ends_a_program_with_its_code() -> None:
    with pytest.raises(SystemExit) as caught:
        raise Preempted
    assert caught.value.code == 128 + signal.SIGTERM


def test_the_first_interrupt_asks_and_the_second_does_not_wait() -> None:
    before, preemption = signal.getsignal(signal.SIGINT), Preemption()
    with pytest.raises(KeyboardInterrupt), preemption.heeded():
        os.kill(os.getpid(), signal.SIGINT)
        assert (preemption.asked, preemption.by) == (True, signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("goes on")
    assert signal.getsignal(signal.SIGINT) is before
    assert Preempted(preemption.by).code == 130


def test_in_another_thread_nothing_changes() -> None:
    """Python hears signals in the main thread alone, and refuses handlers in others."""
    before, failed = signal.getsignal(signal.SIGTERM), []

    def heed() -> None:
        try:
            with Preemption().heeded():
                assert signal.getsignal(signal.SIGTERM) is before
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=heed)
    thread.start()
    thread.join()
    assert failed == []
