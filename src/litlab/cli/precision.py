"""`ExperimentTrainer`: Lightning's Trainer, whose precision can follow from the hardware, which
knows TF32, and which logs more steps of short epochs.
"""

from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from litlab.errors import UserError
from litlab.util.device import has_fast_bfloat16, has_tensor_cores
from litlab.util.ranks import divides_model

MOST_STEPS = 50  # between two that are logged; Lightning's own default
# What the Trainer of Lightning (2.6.6) takes
PrecisionInput = Literal[
    "64-true", "32-true", "16-true", "16-mixed", "bf16-true", "bf16-mixed",
    "transformer-engine", "transformer-engine-float16", "64", "32", "16", "bf16", 64, 32, 16,
]  # fmt: skip


class ExperimentTrainer(Trainer):
    """Lightning's Trainer with one more precision, ``auto``, with TF32 as a setting, and with an
    interval between logs that suits the length of an epoch.

    Lightning computes in float32 unless it is told otherwise, and takes any precision on any
    device: bfloat16 on a CPU that has to emulate it is many times slower.

    Args:
        precision: As Lightning's, or ``auto``: bf16-mixed where the device has units for bfloat16
            (GPUs from Ampere on, Apple's from macOS 14 on, CPUs with AVX512-BF16, AMX or ARM's
            BF16), 16-mixed with gradient scaling on GPUs from Volta on, 32-true elsewhere. Null is
            32-true. With bf16-true and 16-true, normalisation layers stay in float32.
        tf32: Whether GPUs from Ampere on compute float32 matrix products and convolutions in TF32,
            with 10 bits of the mantissa instead of 23. Null is as torch has it: convolutions only.
            It matters where float32 is computed
            (https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices).
        log_every_n_steps: How often steps are logged, such as their loss. Null is ten times in an
            epoch, and at least every 50 steps.
        settings: Lightning's other settings.
    """

    def __init__(
        self,
        *,
        precision: PrecisionInput | Literal["auto"] | None = None,
        tf32: bool | None = None,
        log_every_n_steps: int | None = None,
        **settings: Any,
    ) -> None:
        # `auto` becomes one of Lightning's own words
        reason = ""
        if precision == "auto":
            precision, reason = choose_precision(find_device(settings.get("accelerator", "auto")))
        strategy = settings.get("strategy")
        if precision == "16-mixed" and (
            strategy == "fsdp2" or isinstance(strategy, ModelParallelStrategy)
        ):
            raise UserError(
                "trainer.precision: 16-mixed scales the loss, which a trainer.strategy that "
                "divides the model can't; use 32-true, bf16-mixed or bf16-true, or "
                "trainer.strategy ddp"
            )
        super().__init__(precision=precision, **settings)
        self._log_interval = log_every_n_steps

        # Ours take the place of what Lightning has made of the setting. Only of exactly these
        # classes: a subclass that trainer.plugins names stays.
        plugin: Any = self.precision_plugin
        # Strategies that shard want one type in a block.
        if type(plugin) is HalfPrecision and not divides_model(self.strategy):
            self.strategy.precision_plugin = HalfWithFloat32Norms(plugin.precision)  # pyright: ignore[reportArgumentType]
        if type(plugin) is MixedPrecision:
            mixed: Any = plugin.precision
            kind = MixedPrecisionOnCPU if plugin.device == "cpu" else ClippingMixedPrecision
            self.strategy.precision_plugin = kind(mixed, plugin.device, plugin.scaler)
        if reason:
            rank_zero_info(f"Precision: {self.precision}, {reason}")
        if tf32 is not None:
            # By the older of torch's two ways: after the newer one Lightning (2.6.6) fails to ask
            # for the precision.
            torch.set_float32_matmul_precision("high" if tf32 else "highest")
            torch.backends.cudnn.allow_tf32 = tf32

    @property
    def log_every_n_steps(self) -> int:
        """Steps between two that are logged. An epoch of few steps has points of its curve, too."""
        if self._log_interval is not None:
            return self._log_interval
        tenth = self.num_training_batches / 10  # infinite until the batches are known
        return int(max(1, min(MOST_STEPS, tenth)))

    @log_every_n_steps.setter
    def log_every_n_steps(self, value: int) -> None:
        self._log_interval = value  # Lightning's own default, in its __init__, does not count


def choose_precision(
    device: torch.device,
) -> tuple[Literal["bf16-mixed", "16-mixed", "32-true"], str]:
    """Return the precision that suits a device, and why."""
    # bfloat16 before float16: it has the range of float32, so gradients need no scale
    name = {"cuda": "this GPU", "cpu": "this CPU", "mps": "this GPU"}.get(device.type, "the device")
    if has_fast_bfloat16(device):
        return "bf16-mixed", f"as {name} has units for bfloat16"
    if has_tensor_cores(device):
        return "16-mixed", f"as {name} has units for float16, but not for bfloat16"
    return "32-true", f"as {name} has no units for bfloat16"


class HookingPrecision(Precision):
    """A plugin that changes what layers do by hooks, for as long as it is in use."""

    _hooks: tuple[RemovableHandle, ...] = ()

    def teardown(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_hooks": ()}  # a copy is for another module


class HalfWithFloat32Norms(HookingPrecision, HalfPrecision):
    """Lightning's plugin for weights of 16 bits, which leaves normalisation layers as they are.

    Lightning's own converts all weights and buffers. The mean of a batch normalisation then stops
    moving, as what a batch adds is less than the last of bfloat16's 8 bits, and statistics within a
    layer are sums over many values. Here a norm, a layer with weights or statistics and "Norm" in
    its class's name, has weights, statistics and arithmetic of float32, and returns the model's 16
    bits.
    """

    def convert_module(self, module: nn.Module) -> nn.Module:
        # Copied first: converting rounds the values off, and nothing brings them back
        norms = [layer for layer in module.modules() if _is_norm(layer)]
        states = [
            {name: value.clone() for name, value in norm.state_dict().items()} for norm in norms
        ]
        super().convert_module(module)
        for norm, state in zip(norms, states, strict=True):
            norm.float().load_state_dict(state)
        # Around each norm: 16 bits in and out, float32 within
        widen = [norm.register_forward_pre_hook(_widen) for norm in norms]
        self._hooks = (*widen, *(norm.register_forward_hook(self._narrow) for norm in norms))
        return module

    def _narrow(self, norm: nn.Module, inputs: Any, output: Any) -> Any:
        return self.convert_input(output)


class ClippingMixedPrecision(MixedPrecision):
    """Lightning's plugin for mixed precision, which clips for fused optimizers too where no
    gradient is scaled.

    Those unscale gradients in their step, after they would be clipped, so Lightning (2.6.6)
    refuses. But only float16 needs a scale.
    """

    def clip_gradients(self, *args: Any, **kwargs: Any) -> None:
        # MixedPrecision's method refuses fused optimizers, Precision's does not
        plugin = MixedPrecision if self.scaler is not None else Precision
        plugin.clip_gradients(self, *args, **kwargs)


class MixedPrecisionOnCPU(HookingPrecision, ClippingMixedPrecision):
    """The plugin for mixed precision on a CPU: there depthwise convolutions are trained in float32.

    In bfloat16 torch (2.15) computes their gradients so slowly that networks such as EfficientNet
    and MobileNet take longer than all in float32.
    """

    _is_off = False  # within such a convolution

    def convert_module(self, module: nn.Module) -> nn.Module:
        for layer in module.modules():
            # Depthwise: each channel is convolved for itself
            if isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1:
                before = layer.register_forward_pre_hook(self._switch_off)
                # Also where the layer raises: autocast would stay off for the whole thread
                after = layer.register_forward_hook(self._switch_on, always_call=True)
                self._hooks += (before, after)
        if self._hooks:
            filters = [weight for weight in module.parameters() if weight.ndim == 4]
            has_channels_last = all(
                w.is_contiguous(memory_format=torch.channels_last) for w in filters
            )
            advice = "" if has_channels_last else "; channels_last: true is another factor of two"
            rank_zero_info(
                f"Precision: {len(self._hooks) // 2} depthwise convolutions are trained in "
                f"float32, in which a CPU is faster at them{advice}"
            )
        return module

    def _switch_off(self, layer: nn.Module, inputs: tuple[Any, ...]) -> Any:
        # Only gradients are slow: an evaluation stays in bfloat16
        self._is_off = torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()
        if self._is_off:
            torch.set_autocast_enabled("cpu", False)
            # The layer before has left bfloat16, and the weights are float32
            return tuple(value.float() for value in inputs)
        return None

    def _switch_on(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        if self._is_off:
            torch.set_autocast_enabled("cpu", True)


def find_device(accelerator: str) -> torch.device:
    """Return the first device of this machine that a run may use.

    Args:
        accelerator: As Lightning's.
    """
    if accelerator in ("auto", "gpu"):
        available = torch.accelerator.current_accelerator(check_available=True)
        accelerator = "cpu" if available is None else available.type
    # "meta" stands for all others, such as TPUs: of their units nothing is known here
    return torch.device(accelerator if accelerator in ("cpu", "mps", "cuda") else "meta", 0)


def _is_norm(layer: nn.Module) -> bool:
    tensors = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
    return "Norm" in type(layer).__name__ and bool(tensors)


def _widen(norm: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    halves = (torch.bfloat16, torch.float16)
    return tuple(
        value.float() if isinstance(value, Tensor) and value.dtype in halves else value
        for value in inputs
    )
