"""A strategy that shards a model over all processes, and divides its layers among some of them."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.fabric.utilities.optimizer import _optimizers_to_device
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import Strategy, StrategyRegistry
from lightning.pytorch.trainer.states import TrainerFn
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from typing_extensions import override

from litlab.errors import UserError
from litlab.parallel.clipping import clip_norm
from litlab.parallel.groups import DataGroups
from litlab.parallel.plan import networks, plan_of
from litlab.parallel.sharding import divide_tensors, divided_like, policy_of, shard_fully


class ShardedStrategy(DataGroups):
    """FSDP2, tensor parallelism, or both: each process holds a part of the model.

    Args:
        tensor_parallel_size: Processes that share each layer of the network's plan; the others share the data.
        reshard_after_forward: Whether weights are freed between forward and backward pass and gathered again.
        cpu_offload: Whether weights, gradients and optimizer state stay in host memory.
    """

    def __init__(
        self, tensor_parallel_size: int = 1, reshard_after_forward: bool = True, cpu_offload: bool = False
    ) -> None:
        super().__init__(tensor_parallel_size=tensor_parallel_size, save_distributed_checkpoint=False)
        self.tensor_parallel_size = tensor_parallel_size
        self.reshard_after_forward, self.cpu_offload = reshard_after_forward, cpu_offload

    @override
    def setup_environment(self) -> None:
        processes = self.num_nodes * self.num_processes
        if processes % self.tensor_parallel_size:
            raise UserError(
                f"trainer.strategy: tensor_parallel_size is {self.tensor_parallel_size}, which does not divide "
                f"{processes} processes; change it, or trainer.devices"
            )
        self._data_parallel_size = processes // self.tensor_parallel_size
        super().setup_environment()

    @override
    def setup(self, trainer: Trainer) -> None:
        assert self.model is not None
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        fits = trainer.state.fn == TrainerFn.FITTING
        if not any(isinstance(parameter, DTensor) for parameter in self.model.parameters()):  # a test follows a fit
            self._check()
            if self._layer_sync is not None:
                self.model = self._layer_sync.apply(self.model)
            self.model = self.precision_plugin.convert_module(self.model)
            self._divide()
        self.model_to_device()
        self.gather_in_data_group(self.model)
        self.barrier()
        if fits:
            self.setup_optimizers(trainer)
            self._prepare_optimizers()
        self.setup_precision_plugin()
        plugin: Any = self.precision_plugin
        plugin.clip_grad_by_norm = self._clip_by_norm

    def _check(self) -> None:
        """Refuse what would go wrong later, or silently."""
        assert self.model is not None
        if getattr(self.precision_plugin, "scaler", None) is not None:
            raise UserError(
                f"trainer.precision: {self.precision_plugin.precision} needs a scaler that knows the gradients of all "
                f"processes, and trainer.strategy {type(self).__name__} has none; use bf16-mixed or 32-true"
            )
        if own := [name for name, _ in self.model.named_parameters(recurse=False)]:
            raise UserError(
                f"trainer.strategy: {type(self).__name__} shards modules, and {type(self.model).__name__} has a "
                f"parameter of its own ({own[0]}); put it into a module that is called, or use ddp"
            )

    def _divide(self) -> None:
        assert self.model is not None
        data, tensor = self.device_mesh["data_parallel"], self.device_mesh["tensor_parallel"]
        policy = policy_of(str(self.precision_plugin.precision))
        for network in networks(self.model).values():
            plan = plan_of(network)
            if tensor.size() > 1:
                divide_tensors(network, plan, tensor)
            if data.size() > 1 or tensor.size() == 1:
                # Block by block, so that no more than one of them is whole on the device.
                shard_fully(network, plan, data, policy, self.cpu_offload, self.reshard_after_forward)

    @override
    def model_to_device(self) -> None:
        assert self.model is not None
        if not self.cpu_offload:
            self.model.to(self.root_device)
            return
        for module in self.model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(self.root_device)

    def _prepare_optimizers(self) -> None:
        """With divided layers an optimizer has tensors of several kinds, which it can't update in one call."""
        if not self.cpu_offload:
            _optimizers_to_device(self.optimizers, self.root_device)
        if self.tensor_parallel_size == 1:
            return
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            if group.get("fused"):
                raise UserError(
                    "model.optimizer.fused: it takes weights of one kind only, and tensor_parallel_size of "
                    "trainer.strategy makes several; set it to null"
                )
            if "foreach" in group:
                group["foreach"] = False

    def _clip_by_norm(self, optimizer: Optimizer, clip_val: float) -> None:
        clip_norm(self.precision_plugin.main_params(optimizer), clip_val, self.root_device)

    # Checkpoints are those of any other strategy: one file, with whole weights, and the optimizer's states by number.

    @property
    @override
    def lightning_restore_optimizer(self) -> bool:
        return True

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        return {name: self._gathered(value) for name, value in self.model.state_dict().items()}

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        plain = getattr(optimizer, "_optimizer", optimizer).state_dict()
        return apply_to_collection(plain, Tensor, self._gathered)

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    @override
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        mine = self.model.state_dict()
        whole = {
            name: divided_like(mine[name], value) if name in mine else value
            for name, value in checkpoint["state_dict"].items()
        }
        self.model.load_state_dict(whole, strict=strict)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            state = {
                number: {name: divided_like(parameters[number], value) for name, value in entries.items()}
                for number, entries in saved["state"].items()
            }
            optimizer.load_state_dict({**saved, "state": state})

    def _gathered(self, tensor: Tensor) -> Tensor:
        """Return a whole tensor on the CPU. Each process must call this, in the same order; the first one keeps it."""
        whole: Any = tensor.detach()
        if isinstance(whole, DTensor):
            whole = whole.to(self.root_device)
            whole = whole.full_tensor()
        return whole.cpu() if self.is_global_zero else torch.empty(0)


StrategyRegistry.register("fsdp2", ShardedStrategy, "Shard the model over all devices (FSDP2)")
