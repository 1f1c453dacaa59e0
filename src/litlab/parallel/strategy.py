"""A strategy that shards a model over all processes, and divides its layers among some of them."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.fabric.utilities.device_dtype_mixin import _update_properties
from lightning.fabric.utilities.optimizer import _optimizers_to_device
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torchmetrics import Metric
from typing_extensions import override

from litlab.errors import UserError
from litlab.parallel.clipping import clip_norm, clip_value
from litlab.parallel.groups import DataGroups
from litlab.parallel.plan import blocks_of, check_weights, networks, plan_of
from litlab.parallel.sharding import check_optimizer, divide_tensors, policy_of, shard_fully
from litlab.parallel.tensors import divided_like, reshard


class ShardedStrategy(DataGroups):
    """FSDP2, tensor parallelism, or both: each process holds a part of the model.

    Args:
        tensor_parallel_size: Processes that share each layer of the network's plan; the others share the data.
        reshard_after_forward: Whether weights are freed between forward and backward pass and gathered again.
        cpu_offload: Whether weights, gradients and optimizer state stay in host memory.
        save_distributed_checkpoint: Whether each process writes its part of a checkpoint, into a folder beside it.
        async_checkpoint: Whether they do so in the background, from a copy in host memory.
    """

    def __init__(
        self,
        tensor_parallel_size: int = 1,
        reshard_after_forward: bool = True,
        cpu_offload: bool = False,
        save_distributed_checkpoint: bool = False,
        async_checkpoint: bool = False,
    ) -> None:
        super().__init__(
            tensor_parallel_size=tensor_parallel_size, save_distributed_checkpoint=save_distributed_checkpoint
        )
        if tensor_parallel_size < 1:
            raise UserError(f"trainer.strategy: tensor_parallel_size is {tensor_parallel_size}; set it to 1 or more")
        if async_checkpoint and not save_distributed_checkpoint:
            raise UserError(
                "trainer.strategy: async_checkpoint is for the parts that processes write; set "
                "save_distributed_checkpoint too"
            )
        self.async_checkpoint = async_checkpoint
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
        for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
            loop.inference_mode = False  # the buffers that FSDP2 makes in one could not be trained with later
        trainer.fit_loop.epoch_loop.val_loop.inference_mode = False
        fits = trainer.state.fn == TrainerFn.FITTING
        if not any(isinstance(parameter, DTensor) for parameter in self.model.parameters()):  # a test follows a fit
            self._check()
            if self._layer_sync is not None:
                self.model = self._layer_sync.apply(self.model)
            self.model = self.precision_plugin.convert_module(self.model)
            self._make_equal()
            self._divide()
        self.model_to_device()
        self.gather_in_data_group(self.model)
        self.barrier()
        if fits:
            self.setup_optimizers(trainer)
            self._prepare_optimizers()
        self.setup_precision_plugin()
        plugin: Any = self.precision_plugin
        plugin.clip_grad_by_norm = lambda optimizer, most: clip_norm(
            plugin.main_params(optimizer), most, self.root_device
        )
        plugin.clip_grad_by_value = lambda optimizer, most: clip_value(plugin.main_params(optimizer), most)

    def _check(self) -> None:
        """Refuse what would go wrong later, or silently."""
        assert self.model is not None
        if getattr(self.precision_plugin, "scaler", None) is not None:
            raise UserError(
                f"trainer.precision: {self.precision_plugin.precision} needs a scaler that knows the gradients of all "
                f"processes, and trainer.strategy {type(self).__name__} has none; use bf16-mixed or 32-true"
            )
        called = tuple(f"{name}." for name in networks(self.model))
        if own := [name for name, _ in self.model.named_parameters() if not name.startswith(called)]:
            raise UserError(
                f"trainer.strategy: {type(self).__name__} shards modules, and {type(self.model).__name__} has a "
                f"parameter of its own ({own[0]}); put it into a module that is called, or use ddp"
            )

    def _make_equal(self) -> None:
        """Begin with the weights and buffers of the first process, as DDP does: some stay whole in each of them."""
        assert self.model is not None
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            first = tensor.detach().to(self.root_device)
            torch.distributed.broadcast(first, 0)
            tensor.detach().copy_(first)

    def _divide(self) -> None:
        assert self.model is not None
        sharing, dividing = self.device_mesh["data_parallel"], self.device_mesh["tensor_parallel"]
        policy = policy_of(str(self.precision_plugin.precision))
        found = networks(self.model)
        shards = sharing.size() > 1 or dividing.size() == 1 or self.cpu_offload
        if shards:
            blocks = (f"{name}.{block}" for name, network in found.items() for block in blocks_of(network))
            check_weights(self.model, [*found, *blocks])
        for network in found.values():
            plan = plan_of(network)
            if dividing.size() > 1:
                divide_tensors(network, plan, dividing)
            if shards:
                # Block by block, so that no more than one of them is whole on the device.
                shard_fully(network, blocks_of(network), sharing, policy, self.cpu_offload, self.reshard_after_forward)

    @override
    def model_to_device(self) -> None:
        assert self.model is not None
        if not self.cpu_offload:
            self.model.to(self.root_device)
            return
        reshard(self.model)  # after a validation; `to` does so itself
        for module in self.model.modules():
            if isinstance(module, Metric):
                module.to(self.root_device)
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(self.root_device)
        _update_properties(self.model, device=self.root_device)  # where batches are, and what is logged

    def _prepare_optimizers(self) -> None:
        if not self.cpu_offload:
            _optimizers_to_device(self.optimizers, self.root_device)
        for optimizer in self.optimizers:
            check_optimizer(optimizer, type(self).__name__)
            # With divided layers there are weights of several kinds, which can't be updated in one call.
            for group in optimizer.param_groups if self.tensor_parallel_size > 1 else ():
                if group.get("fused"):
                    raise UserError(
                        "model.optimizer.fused: it takes weights of one kind only, and tensor_parallel_size of "
                        "trainer.strategy makes several; set it to null"
                    )
                if "foreach" in group:
                    group["foreach"] = False

    # Checkpoints are those of any other strategy: one file, with whole weights, and the optimizer's states by number.
    # With `save_distributed_checkpoint` each process gives its parts to litlab's ShardedCheckpointIO.

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
        return state if self._save_distributed_checkpoint else apply_to_collection(state, Tensor, self._gathered)

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        parts = getattr(optimizer, "_optimizer", optimizer).state_dict()
        return self.gathered(parts)

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if not self._save_distributed_checkpoint:
            Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)
            return
        if not hasattr(self.checkpoint_io, "load_parts"):
            raise UserError("trainer.plugins: save_distributed_checkpoint needs a ShardedCheckpointIO; add one")
        self.checkpoint_io.save_checkpoint(checkpoint, filepath, self.async_checkpoint)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        load_parts = getattr(self.checkpoint_io, "load_parts", None)
        if load_parts is None:
            return Strategy.load_checkpoint(self, checkpoint_path, weights_only)
        return load_parts(checkpoint_path, self.model, self.optimizers)

    @override
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        mine = self.model.state_dict()
        parts = {
            name: divided_like(mine[name], value) if name in mine else value
            for name, value in checkpoint["state_dict"].items()
        }
        self.model.load_state_dict(parts, strict=strict)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            state = {
                number: {name: divided_like(parameters[number], value) for name, value in entries.items()}
                for number, entries in saved["state"].items()
            }
            # How the update is computed is not what it continues: with ddp it may have been another way.
            ways = [
                {way: group[way] for way in ("foreach", "fused") if way in group} for group in optimizer.param_groups
            ]
            groups = [{**group, **way} for group, way in zip(saved["param_groups"], ways, strict=True)]
            optimizer.load_state_dict({**saved, "state": state, "param_groups": groups})

    @override
    def on_train_end(self) -> None:
        super().on_train_end()
        if self.async_checkpoint:
            self.checkpoint_io.wait()  # pyright: ignore[reportAttributeAccessIssue]

    @override
    def teardown(self) -> None:
        super().teardown()
        self.checkpoint_io.teardown()

    def _gathered(self, tensor: Tensor) -> Tensor:
        """Return a whole tensor on the CPU. Each process must call this, in the same order; the first one keeps it."""
        tensor = tensor.detach()
        if isinstance(tensor, DTensor):
            tensor = tensor.to(self.root_device).full_tensor()  # pyright: ignore[reportAttributeAccessIssue]
        return tensor.cpu() if self.is_global_zero else torch.empty(0)
