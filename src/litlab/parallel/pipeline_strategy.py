"""A strategy in which each process holds some of a network's blocks, and micro-batches pass through all of them."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from lightning.fabric.utilities.optimizer import _optimizers_to_device
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

from litlab.errors import UserError
from litlab.parallel.groups import DataGroups
from litlab.parallel.pipeline import Pipeline
from litlab.parallel.plan import blocks_of, networks
from litlab.parallel.stages import Stage

PIPELINE = "_pipeline"  # of a network that is divided


class PipelineStrategy(DataGroups):
    """Pipeline parallelism: all processes form one pipeline, and each holds a part of the network's blocks.

    Every process gets the same batches and computes loss, metrics and steps of the whole batch; only the network's call
    is divided, see `Pipeline`. What is not in a block is in every process.

    Args:
        microbatches: Parts of a batch that are under way at once. Of the time, ``(processes - 1) / (microbatches +
            processes - 1)`` is spent waiting.
    """

    def __init__(self, microbatches: int = 4) -> None:
        if microbatches < 1:
            raise UserError(f"trainer.strategy: microbatches is {microbatches}; set it to 1 or more")
        super().__init__(data_parallel_size=1, save_distributed_checkpoint=False)
        self.microbatches = microbatches
        self._stages: dict[str, Stage] = {}  # by the name of their network

    @override
    def setup_environment(self) -> None:
        self._tensor_parallel_size = self.num_nodes * self.num_processes  # they have the same samples
        super().setup_environment()

    @override
    def setup(self, trainer: Trainer) -> None:
        assert self.model is not None
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        fits = trainer.state.fn == TrainerFn.FITTING
        found = {name: getattr(network, PIPELINE, None) for name, network in networks(self.model).items()}
        self._stages = {name: pipeline.stage for name, pipeline in found.items() if pipeline}
        is_new = not self._stages  # a test may follow a fit
        if is_new:
            self._divide()
        self.model_to_device()
        if is_new:
            self._make_equal()
        self.gather_in_data_group(self.model)
        self.barrier()
        if fits:
            self.setup_optimizers(trainer)
            _optimizers_to_device(self.optimizers, self.root_device)
        self.setup_precision_plugin()
        plugin: Any = self.precision_plugin
        plugin.clip_grad_by_norm = self._clip_by_norm

    def _divide(self) -> None:
        assert self.model is not None
        if getattr(self.precision_plugin, "scaler", None) is not None:
            raise UserError(
                f"trainer.precision: {self.precision_plugin.precision} needs a scaler that knows the gradients of all "
                "processes, and trainer.strategy pipeline has none; use bf16-mixed or 32-true"
            )
        blocks = {name: len(blocks_of(network)) for name, network in networks(self.model).items()}
        name = max(blocks, key=lambda one: blocks[one], default="")
        if not blocks.get(name):
            raise UserError(
                f"trainer.strategy: model.{name} has no blocks for a pipeline (modules of a ModuleList or Sequential); "
                "give its class a parallel_plan that names some, or use fsdp2"
            )
        if blocks[name] < self.world_size:
            raise UserError(
                f"trainer.strategy: a pipeline of {self.world_size} processes needs at least {self.world_size} blocks, "
                f"and model.{name} has {blocks[name]}; add layers, set trainer.devices to {blocks[name]}, or use fsdp2"
            )
        self.model = self.precision_plugin.convert_module(self.model)
        for name, network in networks(self.model).items():
            if blocks[name] >= self.world_size:  # a small network beside it is whole in every process
                stage = Stage(network, self.global_rank, self.world_size)
                setattr(network, PIPELINE, Pipeline(stage, self.microbatches, self.root_device))
                self._stages[name] = stage

    @override
    def model_to_device(self) -> None:
        assert self.model is not None
        with ExitStack() as stack:
            for stage in self._stages.values():
                stack.enter_context(stage.without_foreign())
            self.model.to(self.root_device)

    def _make_equal(self) -> None:
        """Copy what every process has from the first one."""
        assert self.model is not None
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            if not tensor.is_meta and not name.startswith(self._own):
                torch.distributed.broadcast(tensor.data, 0)

    @property
    def _own(self) -> tuple[str, ...]:
        """How names of what this process alone has begin."""
        return tuple(f"{name}.{block}." for name, stage in self._stages.items() for block in stage.own)

    def _own_parameters(self) -> set[int]:
        assert self.model is not None
        return {id(parameter) for name, parameter in self.model.named_parameters() if name.startswith(self._own)}

    @torch.no_grad()
    def _clip_by_norm(self, optimizer: Optimizer, clip_val: float) -> None:
        """Clip by the norm of the whole gradient, in which what every process has counts once."""
        own = self._own_parameters()
        mine, others = [], []
        for parameter in self.precision_plugin.main_params(optimizer):
            if parameter.grad is not None:
                (mine if id(parameter) in own else others).append(parameter)
        # In float32, in which it is where a process has none, whatever precision the gradients have.
        square = nn.utils.get_total_norm([p.grad for p in mine]).to(self.root_device, torch.float32).square()
        torch.distributed.all_reduce(square)
        square += nn.utils.get_total_norm([p.grad for p in others]).to(square).square()
        nn.utils.clip_grads_with_norm_([*mine, *others], clip_val, square.sqrt())

    # Checkpoints are those of any other strategy: one file, with whole weights, and the optimizer's states by number.

    @property
    @override
    def lightning_restore_optimizer(self) -> bool:
        return True

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        return self.gathered(self.model.state_dict())

    @override
    def gathered(self, state: dict[str, Any]) -> dict[str, Any]:
        # What follows the blocks is computed by the last process alone: its buffers count.
        late = {
            f"{name}.{buffer}"
            for name, stage in self._stages.items()
            if stage.is_last
            for buffer in stage.outer_buffers
        }
        whole = self._collected({k: value for k, value in state.items() if k.startswith(self._own) or k in late})
        rest = apply_to_collection(state, Tensor, lambda one: torch.empty(0) if one.is_meta else one.detach())
        return {name: whole.get(name, value) for name, value in rest.items()}

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        plain = getattr(optimizer, "_optimizer", optimizer)
        state: dict[str, Any] = plain.state_dict()
        own = self._own_parameters()
        numbers = [n for n, parameter in enumerate(_parameters(plain)) if id(parameter) in own and n in state["state"]]
        whole = {**state["state"], **self._collected({number: state["state"][number] for number in numbers})}
        return {**state, "state": {number: whole[number] for number in sorted(whole)}}

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    @override
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert isinstance(self.model, LightningModule)
        foreign = {
            name for name, value in self.model.state_dict().items() if isinstance(value, Tensor) and value.is_meta
        }
        state = checkpoint["state_dict"]
        mine = {name: value.to("meta") if name in foreign else value for name, value in state.items()}
        self.model.load_state_dict(mine, strict=strict)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = _parameters(optimizer)
            state = {number: entry for number, entry in saved["state"].items() if not parameters[number].is_meta}
            optimizer.load_state_dict({**saved, "state": state})

    def _collected(self, mine: dict[Any, Any]) -> dict[Any, Any]:
        """Return on the first process what all have, what is not its own on the CPU; on the others nothing.

        Tensor by tensor, so that no device holds more than one that is not its own. The states of 8-bit optimizers are
        an exception: all processes get all of them at once.
        """
        kinds: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(kinds, apply_to_collection(mine, Tensor, _kind))
        whole: dict[Any, Any] = {}
        for process, kind in enumerate(kinds):
            if process == 0 == self.global_rank:
                whole |= apply_to_collection(mine, Tensor, Tensor.detach)
            elif self.global_rank == 0:
                whole |= apply_to_collection(kind, Tensor, self._receive, process)
            elif process == self.global_rank:
                apply_to_collection(mine, Tensor, self._send)
        return whole

    def _receive(self, kind: Tensor, process: int) -> Tensor:
        if not kind.is_meta:
            return kind
        tensor = torch.empty_like(kind, device=self.root_device).contiguous()
        torch.distributed.recv(tensor, process)
        return tensor.cpu()

    def _send(self, tensor: Tensor) -> None:
        if _kind(tensor).is_meta:
            torch.distributed.send(tensor.detach().to(self.root_device).contiguous(), 0)


def _kind(tensor: Tensor) -> Tensor:
    """Return what tells another process to expect a tensor; those of 8-bit optimizers are sent with it as they are."""
    return tensor.detach().to("meta" if type(tensor) in (Tensor, nn.Parameter) else "cpu")


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
