"""What a stage of a pipeline sends and receives for micro-batches of one shape."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import broadcast_object_list, recv_object_list, send_object_list
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils._pytree import TreeSpec, tree_flatten

from litlab.errors import UserError, first_line
from litlab.parallel.stages import Stage, devices_of

Kind = tuple[torch.Size, torch.dtype]


class Passes:
    """The forward and backward passes of some micro-batches that are alike, by torch's ``PipelineStage``.

    It has to know what is sent. So all stages run one of the micro-batches first, one stage after the other.

    Args:
        stage: This process's part of the network.
        batch: One of the micro-batches: positional and keyword arguments of the network.
        count: How many there are.
        rows: Samples in each of them.
        trains: Whether there is a backward pass.
        device: Where the process computes.
        key: What says which batches these are for.

    Raises:
        UserError: In all processes, if one of them can't run its stage.
    """

    def __init__(
        self, stage: Stage, batch: Any, count: int, rows: int, trains: bool, device: torch.device, key: object
    ) -> None:
        self.key = key
        self.used: list[bool] | None = None  # which of the shared parameters get a gradient, in any stage
        self.outputs: list[Kind] = []  # of the last stage
        self.spec: TreeSpec
        self._part = _Part(stage, trains, rows)
        received, results = self._rehearse(batch, device)
        self.stage = PipelineStage(
            self._part, stage.number, stage.count, device, input_args=(received,), output_args=results
        )
        self.stage.has_backward = trains
        most = max(count, stage.count)  # torch 2.10 wants one for each stage, needed or not
        schedule = ScheduleGPipe(self.stage, most, loss_fn=_outside if trains else None)
        schedule._initialize_stage((received,), {})
        self._root = received

    def forward(self, number: int, batch: Any) -> tuple[Tensor, ...]:
        """Run this stage for one of the micro-batches; return its results."""
        self._part.batch = batch
        try:
            return self.stage.forward_one_chunk(number, (self._root,), {}, save_forward_output=False)
        except RuntimeError as error:
            raise error.__cause__ or error from None  # torch hides what has gone wrong in a print of all tensors

    def _rehearse(self, batch: Any, device: torch.device) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return tensors like those that this stage gets and returns; others may see an error of this process."""
        stage, part = self._part.stage, self._part
        received, results, failure = torch.zeros(1, device=device), (), None
        message: list[Any] = [None]
        if not stage.is_first:
            recv_object_list(message, stage.number - 1, device=device)
        if not isinstance(message[0], str):
            part.batch = batch
            try:
                with torch.random.fork_rng(devices_of(device)):  # a resumed run rehearses at other times
                    if not stage.is_first:
                        shape, dtype = message[0]
                        received = _like(shape, dtype, device).requires_grad_(part.trains)
                    results = part.rehearse(received)
                message = [(results[0].shape, results[0].dtype)]
            except Exception as error:
                alike = isinstance(error, UserError)  # one message, whichever process has found it
                failure = error
                message = [str(error) if alike else f"trainer.strategy: in process {stage.number}: {first_line(error)}"]
        if not stage.is_last:
            send_object_list(message, stage.number + 1, device=device)
        elif not isinstance(message[0], str):
            message = [([(result.shape, result.dtype) for result in results], part.spec)]
        broadcast_object_list(message, stage.count - 1, device=device)
        if failure is not None:
            raise failure
        if isinstance(message[0], str):
            raise UserError(message[0])
        self.outputs, self.spec = message[0]
        return received.detach().requires_grad_(received.requires_grad), tuple(
            result.detach().requires_grad_(result.requires_grad) for result in results
        )


class _Part(nn.Module):
    """What PipelineStage calls: a stage, with the micro-batch that each process has anyway."""

    def __init__(self, stage: Stage, trains: bool, rows: int) -> None:
        super().__init__()
        self.stage, self.trains, self.rows = stage, trains, rows
        self.batch: Any = None
        self.spec: TreeSpec | None = None

    def forward(self, received: Tensor) -> tuple[Tensor, ...]:
        return self._tensors(self.stage.run(None if self.stage.is_first else received, *self.batch))

    def rehearse(self, received: Tensor) -> tuple[Tensor, ...]:
        return self._tensors(self.stage.rehearse(None if self.stage.is_first else received, *self.batch))

    def _tensors(self, output: Any) -> tuple[Tensor, ...]:
        if self.stage.is_last:
            leaves, self.spec = tree_flatten(output)
            if not all(isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == self.rows for leaf in leaves):
                raise UserError(
                    f"trainer.strategy: {type(self.stage.network).__name__} returns something else than tensors with "
                    "one row per sample, which pipeline can't join; use fsdp2"
                )
            return tuple(leaves)
        if self.trains and not output.requires_grad:  # where all before is frozen: the stages agree on what is sent
            output = output.detach().requires_grad_()
        return (output.contiguous(),)


def _like(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    random = torch.randn(shape, device=device)
    return random.to(dtype) if dtype.is_floating_point else torch.zeros_like(random, dtype=dtype)


def _outside(*_: Tensor) -> Tensor:
    raise NotImplementedError  # the loss is computed by the LightningModule, not within a schedule of torch
