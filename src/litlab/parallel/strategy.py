"""A strategy that shards a model over all processes, and divides its layers among some of them.

Lightning's ModelParallelStrategy (2.6.6) leaves dividing to the model's ``configure_model``, counts
shared samples several times, and clips no mix of tensors and DTensors.
"""
# pyright: reportPrivateImportUsage=false

from collections.abc import Mapping
from typing import Any

import torch
from lightning.fabric.utilities.device_dtype_mixin import _update_properties
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Adafactor, Optimizer
from torchmetrics import Metric

from litlab.errors import UserError
from litlab.nn.selection import find_blocks, find_networks
from litlab.parallel.divide import divide_layers, shard_fully
from litlab.parallel.plan import check_shared_weights
from litlab.types import PositiveInt
from litlab.util.ranks import gather_states, share_buffers
from litlab.util.tensors import divide_like, get_local


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2, tensor parallelism, or both: each process holds a part of the model.

    The processes are a mesh ``(data_parallel, tensor_parallel)``. Along its second dimension they
    have the same samples. So sums over all processes count each sample several times, and metrics
    are gathered along the first dimension only.

    Checkpoints are those of any other strategy: one file, with whole weights, and the optimizer's
    states by number.

    Args:
        tensor_parallel_size: Processes that share each layer of the network's plan; the others
            share the data.
        reshard_after_forward: Whether weights are freed after the forward pass and gathered again
            for the backward pass.
        cpu_offload: Whether weights, gradients and optimizer state stay in host memory.
        save_distributed_checkpoint: Whether each process writes its part of a checkpoint, into a
            folder beside it, by litlab's ShardedCheckpointIO.
        async_checkpoint: Whether they do so in the background, from a copy in host memory.
    """

    def __init__(
        self,
        tensor_parallel_size: PositiveInt = 1,
        reshard_after_forward: bool = True,
        cpu_offload: bool = False,
        save_distributed_checkpoint: bool = False,
        async_checkpoint: bool = False,
    ) -> None:
        super().__init__(
            tensor_parallel_size=tensor_parallel_size,
            save_distributed_checkpoint=save_distributed_checkpoint or async_checkpoint,
        )
        self.tensor_parallel_size = tensor_parallel_size
        self.reshard_after_forward = reshard_after_forward
        self.cpu_offload = cpu_offload
        self.async_checkpoint = async_checkpoint
        # The model, once it is
        self._divided: nn.Module | None = None

    @property
    def data_group(self) -> ProcessGroup:
        """The processes that share the samples with this one, one of each set that has the same."""
        return self.device_mesh["data_parallel"].get_group()

    # Setup

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes // self.tensor_parallel_size
        super().setup_environment()

    def setup(self, trainer: Trainer) -> None:
        assert self.model is not None
        assert self.accelerator is not None
        self.accelerator.setup(trainer)

        # The buffers that FSDP2 makes in inference mode could not be trained with later
        for loop in (
            trainer.fit_loop.epoch_loop.val_loop,
            trainer.validate_loop,
            trainer.test_loop,
            trainer.predict_loop,
        ):
            loop.inference_mode = False

        # All begin with the weights of the first process. It is done once: a test may follow a fit.
        if self._divided is not self.model:
            self.model = self.precision_plugin.convert_module(self.model)
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                first = tensor.detach().to(self.root_device)
                torch.distributed.broadcast(first, 0)
                tensor.detach().copy_(first)
            self.divide(self.model)
            self._divided = self.model
        self.model_to_device()
        self._gather_metrics(self.model)

        # What Lightning's strategies do at the end of their setup, and clipping that knows DTensors
        if trainer.state.fn == "fit":
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()
        plugin: Any = self.precision_plugin
        plugin.clip_grad_by_norm = self._clip_norm
        plugin.clip_grad_by_value = self._clip_value

    def divide(self, model: nn.Module) -> None:
        """Divide a model in host memory, whose tensors are those of the first process.

        Raises:
            UserError: If it has a parameter that is in no network, or in two.
        """
        networks = find_networks(model)
        prefixes = tuple(f"{name}." for name in networks)
        for name, _ in model.named_parameters():
            if not name.startswith(prefixes):
                raise UserError(
                    f"trainer.strategy: {type(self).__name__} shards modules, but "
                    f"{type(model).__name__} itself has a parameter ({name}); put it into a "
                    "submodule that is called, or use ddp"
                )
        if self._layer_sync is not None:
            self._layer_sync.apply(model)

        # Tensor parallelism alone divides layers alone; what stays in host memory only FSDP2 moves.
        data_mesh = self.device_mesh["data_parallel"]
        layer_mesh = self.device_mesh["tensor_parallel"]
        is_sharded = data_mesh.size() > 1 or layer_mesh.size() == 1 or self.cpu_offload
        if is_sharded:
            blocks = [
                f"{name}.{block}"
                for name, network in networks.items()
                for block in find_blocks(network)
            ]
            check_shared_weights(model, [*networks, *blocks])
        precision = str(self.precision_plugin.precision)
        for network in networks.values():
            if layer_mesh.size() > 1:
                divide_layers(network, layer_mesh)
            if is_sharded:
                shard_fully(
                    network, data_mesh, precision, self.cpu_offload, self.reshard_after_forward
                )

    def model_to_device(self) -> None:
        assert self.model is not None

        # FSDP2 moves what it keeps in host memory by itself, and nothing else
        def move(tensor: Tensor) -> Tensor:
            stays = self.cpu_offload and isinstance(tensor, DTensor)
            return tensor if stays else tensor.to(self.root_device)

        self.model._apply(move)
        _update_properties(self.model, device=self.root_device)

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            if isinstance(optimizer, Adafactor) or type(optimizer).__module__.startswith("torchao"):
                raise UserError(
                    f"model.optimizer: {type(optimizer).__name__} needs whole weights, which "
                    f"trainer.strategy {type(self).__name__} divides; use another optimizer, or ddp"
                )

    def teardown(self) -> None:
        super().teardown()
        # It waits for what is being written; Lightning's ModelParallelStrategy leaves it out
        self.checkpoint_io.teardown()

    # Sums over samples

    def _gather_metrics(self, module: nn.Module) -> None:
        # A function is copied with a metric, a group not
        def gather(value: Tensor, group: Any = None) -> list[Tensor]:
            return gather_states(value, self.data_group)

        for metric in module.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = gather

    def on_validation_start(self) -> None:
        # As DDP does
        assert self.lightning_module is not None
        share_buffers(self.lightning_module.trainer)

    on_test_start = on_predict_start = on_validation_start

    def reduce(self, tensor: Tensor | Any, group: Any = None, reduce_op: Any = "mean") -> Tensor:
        # Over samples; Lightning's decisions are sums by ReduceOp
        if group is None and reduce_op == "sum":
            group = self.data_group
        return super().reduce(tensor, group, reduce_op)

    # Clipping

    @torch.no_grad()
    def _clip_norm(self, optimizer: Optimizer, most: float) -> None:
        """Scale gradients so that their norm over all processes is at most a number."""
        parameters: list[Any] = [
            p for p in self.precision_plugin.main_params(optimizer) if p.grad is not None
        ]
        if not parameters:
            return
        # Several processes hold the same gradient where it is not divided: each has a share of it.
        gradients = [get_local(parameter.grad) for parameter in parameters]
        holders = torch.tensor([self._count_holders(parameter) for parameter in parameters])
        # In float32, as in float16 they would overflow
        wide = torch.float64 if gradients[0].dtype == torch.float64 else torch.float32
        norms = torch.stack(torch._foreach_norm(gradients, 2, wide)).to(self.root_device)
        squares = norms.square()
        square = (squares / holders.to(self.root_device)).sum()
        torch.distributed.all_reduce(square)
        factor = (most / (square.sqrt() + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factor.to(gradients[0].device))

    def _count_holders(self, parameter: Tensor) -> int:
        """Return how many processes hold the same part of a parameter."""
        holders = self.world_size
        if isinstance(parameter, DTensor):
            for size, placement in zip(
                parameter.device_mesh.shape, parameter.placements, strict=True
            ):
                holders //= 1 if isinstance(placement, Replicate) else size
        return holders

    def _clip_value(self, optimizer: Optimizer, most: float) -> None:
        parameters = self.precision_plugin.main_params(optimizer)
        # The other way takes no mix with DTensors
        torch.nn.utils.clip_grad_value_(parameters, most, foreach=False)

    # Checkpoints. Lightning's ModelParallelStrategy has files of its own, and numbers the
    # optimizer's states in the order of the model. torch.distributed.checkpoint.state_dict (2.15)
    # names them, which would have to be turned into numbers and back; an optimizer without a state
    # is stepped for one; and whole weights are refused where some are in host memory and buffers
    # are on the device, as with `cpu_offload`.

    lightning_restore_optimizer: Any = Strategy.lightning_restore_optimizer

    def gather_state(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """Return what a checkpoint has of some tensors. All processes call this, with their parts
        of them.
        """
        if self._save_distributed_checkpoint:
            return state
        return apply_to_collection(state, Tensor, self._gather)

    def _gather(self, tensor: Tensor) -> Tensor:
        """Return a whole tensor on the CPU, which the first process keeps."""
        tensor = tensor.detach()
        if isinstance(tensor, DTensor):
            # On the device also what is in host memory: NCCL gathers nothing there
            tensor = tensor.to(self.root_device).full_tensor()  # pyright: ignore[reportAttributeAccessIssue]
        return tensor.cpu() if self.is_global_zero else torch.empty(0)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        # Averages of the weights go the same way, by the callback that has them
        assert self.model is not None
        return self.gather_state(self.model.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        return {**state, "state": self.gather_state(state["state"])}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        # In parts all processes write, else the first
        if self._save_distributed_checkpoint:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, self.async_checkpoint)
        else:
            Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        # Only that of ShardedCheckpointIO reads parts; a config may name another one
        load_parts = getattr(self.checkpoint_io, "load_parts", None)
        if load_parts is None:
            return Strategy.load_checkpoint(self, checkpoint_path, weights_only)
        return load_parts(checkpoint_path, self.model, self.optimizers)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        # Each process has read the whole file, or the shards of its parts
        mine = self.model.state_dict()
        state = {
            name: divide_like(mine.get(name), value)
            for name, value in checkpoint["state_dict"].items()
        }
        self.model.load_state_dict(state, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            state = {
                number: {
                    name: divide_like(parameters[number], value) for name, value in entries.items()
                }
                for number, entries in saved["state"].items()
            }
            optimizer.load_state_dict({**saved, "state": state})
