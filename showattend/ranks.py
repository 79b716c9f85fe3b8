"""The processes that train one model together: which is this one, and what they tell each other.

torchrun starts them and says to each, in its environment, who it is; Hugging Face accelerate joins
them and wraps the model in PyTorch's DistributedDataParallel. A process alone needs none of it:
:class:`Ranks` itself then answers for all.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

#: What the others may have to wait for: one may be long at its part of the grids.
_PATIENCE = timedelta(hours=12)
#: Set by torchrun in the environment of each process.
_RANK, _COUNT = "RANK", "WORLD_SIZE"

Told = TypeVar("Told")


class RanksError(ValueError):
    """The processes cannot join, or one of them has gone: one clear line."""


class Ranks:
    """A process that trains alone.

    Attributes:
        device: of this process.
        rank: which process this is, from 0 on.
        count: how many there are.
    """

    rank, count = 0, 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and speaks to people."""
        return self.rank == 0

    def together(self, lesson: nn.Module) -> nn.Module:
        """A module whose gradients are, after each backward pass, the mean over the processes."""
        return lesson

    def apart(self, lesson: nn.Module) -> AbstractContextManager[None]:
        """Within it, gradients of a module of :meth:`together` stay the process's own."""
        return nullcontext()

    def total(self, own_X: Tensor) -> Tensor:
        """The sum over the processes, float64 on the CPU: the same bits in each of them."""
        return own_X.detach().cpu().double()  # MPS has no float64

    def gather(self, own: Told) -> list[Told]:
        """What every process has, in their order."""
        return [own]

    def tell(self, value: Told) -> Told:
        """What the main process has."""
        return value

    def align(self, tensors: list[Tensor]) -> None:
        """Set tensors to those of the main process."""

    def wait(self) -> None:
        """Go on once all are here."""

    @contextmanager
    def company(self) -> Iterator[None]:
        """Within it, the loss of another process is one clear line.

        Raises:
            RanksError: another process has gone.
        """
        yield

    def leave(self) -> None:
        """Part from the others, when all is done."""


class JoinedRanks(Ranks):
    """One of several processes; each method must be called by all of them.

    Raises:
        RanksError: the device is no match for several processes; one line.
    """

    def __init__(self, device: torch.device) -> None:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        if device.type not in ("cpu", "cuda"):
            raise RanksError(f"--device {device}: several processes need cpu or cuda")
        if device.type == "cuda" and int(os.environ["LOCAL_RANK"]) >= torch.cuda.device_count():
            raise RanksError(
                f"{os.environ['LOCAL_WORLD_SIZE']} processes on this machine, which has "
                f"{torch.cuda.device_count()} GPUs; lower torchrun's --nproc-per-node"
            )
        self._accelerator = Accelerator(
            cpu=device.type == "cpu",
            mixed_precision="no",  # the lesson's own autocast knows what stays float32
            kwargs_handlers=[InitProcessGroupKwargs(timeout=_PATIENCE)],
        )
        super().__init__(self._accelerator.device)
        self.rank = self._accelerator.process_index
        self.count = self._accelerator.num_processes

    def together(self, lesson: nn.Module) -> nn.Module:
        """As `Ranks.together`."""
        wrapped: nn.Module = self._accelerator.prepare_model(lesson)
        return wrapped

    def apart(self, lesson: nn.Module) -> AbstractContextManager[None]:
        """As `Ranks.apart`."""
        held: AbstractContextManager[None] = self._accelerator.no_sync(lesson)
        return held

    def total(self, own_X: Tensor) -> Tensor:
        """As `Ranks.total`. The parts are added here, in the order of the ranks: an all-reduce may
        add in another order, and so to other bits, when a run is taken up again.
        """
        parts_RX: Tensor = self._accelerator.gather(
            own_X.detach().double().to(self.device).unsqueeze(0)
        )
        return parts_RX.cpu().sum(dim=0)

    def gather(self, own: Told) -> list[Told]:
        """As `Ranks.gather`."""
        from accelerate.utils import gather_object

        found: list[Told] = gather_object([own])
        return found

    def tell(self, value: Told) -> Told:
        """As `Ranks.tell`."""
        from accelerate.utils import broadcast_object_list

        told: list[Told] = broadcast_object_list([value])
        return told[0]

    def align(self, tensors: list[Tensor]) -> None:
        """As `Ranks.align`."""
        for tensor in tensors:
            torch.distributed.broadcast(tensor, src=0)

    def wait(self) -> None:
        """As `Ranks.wait`."""
        self._accelerator.wait_for_everyone()

    @contextmanager
    def company(self) -> Iterator[None]:
        """As `Ranks.company`."""
        try:
            yield
        except RuntimeError as error:
            if not _is_loss(error):
                raise
            raise RanksError(
                f"process {self.rank} lost another one ({str(error).partition(chr(10))[0]}); what "
                "that one says is why; go on with --resume"
            ) from None

    def leave(self) -> None:
        """As `Ranks.leave`."""
        self._accelerator.end_training()


def join_ranks(device: torch.device) -> Ranks:
    """Join the processes that were started with this one; alone if it was started by itself.

    Args:
        device: where to train; of several GPUs each process takes its own.
    Raises:
        RanksError: one line.
    """
    count: Any = os.environ.get(_COUNT, "1")
    return JoinedRanks(device) if int(count) > 1 else Ranks(device)


def _is_loss(error: RuntimeError) -> bool:
    """Whether a collective failed because of another process: gloo has words alone for it."""
    if isinstance(error, torch.distributed.DistError):
        return True
    text = str(error)
    return any(words in text for words in ("onnection closed", "onnection reset", "Broken pipe"))
