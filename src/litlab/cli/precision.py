"""`ExperimentTrainer`: Lightning's Trainer, whose precision can follow from the hardware, and which knows TF32."""

from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_info

from litlab.cli.half_precision import HalfWithFloat32Norms
from litlab.cli.lightning_internals import PrecisionInput, accelerator_name
from litlab.cli.mixed_precision import ClippingMixedPrecision
from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_or_set_aside
from litlab.util.device import has_fast_bfloat16, has_tensor_cores, has_tf32
from litlab.util.strategies import shards

DIVIDING = ("fsdp2", "pipeline")  # names of ours for a ModelParallelStrategy of Lightning
UNSCALED = ("32-true", "bf16-mixed", "bf16-true", "16-true", None, 32, "32", "bf16")  # those that it takes


class ExperimentTrainer(Trainer):
    """Lightning's Trainer with one more precision, ``auto``, and with TF32 as a setting.

    Lightning computes in float32 unless it is told otherwise, and takes any precision on any device: bfloat16 on a CPU
    that has to emulate it is many times slower.

    Args:
        precision: As Lightning's, or ``auto``: bf16-mixed where the device has units for bfloat16 (GPUs from Ampere on,
            Apple's from macOS 14 on, CPUs with AVX512-BF16, AMX or ARM's BF16), 16-mixed with gradient scaling on GPUs
            from Volta on, 32-true elsewhere. Null is 32-true. With bf16-true and 16-true, normalisation layers stay in
            float32.
        tf32: Whether GPUs from Ampere on compute float32 matrix products and convolutions in TF32, with 10 bits of the
            mantissa instead of 23. Null is as torch has it: convolutions only. It matters where float32 is computed
            (https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices).
        settings: Lightning's other settings.
    """

    def __init__(
        self,
        *,
        precision: PrecisionInput | Literal["auto"] | None = None,
        tf32: bool | None = None,
        **settings: Any,
    ) -> None:
        why = ""
        if precision == "auto":
            precision, why = None, "as trainer.plugins says"
            if not _has_precision(settings.get("plugins")):
                found = _devices(settings.get("accelerator", "auto"), settings.get("devices", "auto"))
                precision, why = auto_precision(found)
        strategy = settings.get("strategy")
        if strategy in DIVIDING or isinstance(strategy, ModelParallelStrategy):
            if why and precision == "16-mixed":
                precision, why = "32-true", f"{why}, and trainer.strategy can't scale gradients"
            _check_divided(precision, strategy)
        super().__init__(precision=precision, **settings)
        if type(self.precision_plugin) is HalfPrecision and not shards(self.strategy):  # which want one type in a block
            self.strategy.precision_plugin = HalfWithFloat32Norms(self.precision)  # pyright: ignore[reportArgumentType]
        if type(amp := self.precision_plugin) is MixedPrecision and not _has_precision(settings.get("plugins")):
            clipping = ClippingMixedPrecision(amp.precision, amp.device, amp.scaler)  # pyright: ignore[reportArgumentType]
            self.strategy.precision_plugin = clipping
        device = self.strategy.root_device
        if why:
            rank_zero_info(f"Precision: {self.precision}, {why}")
        elif "16" in str(self.precision) and device.type == "cpu" and not has_fast_bfloat16(device):
            rank_zero_info(
                f"warning: trainer.precision: {self.precision} is many times slower than 32-true on this CPU, "
                "which has no units for it; set auto to have it only where it is fast"
            )
        if tf32 is not None:
            _set_tf32(tf32, device)


def auto_precision(devices: list[torch.device]) -> tuple[Literal["bf16-mixed", "16-mixed", "32-true"], str]:
    """Return the precision that suits some devices, and why.

    All processes of a run must have the same precision, so that of GPUs that differ the oldest decides.

    Args:
        devices: Those of a run, of one kind.
    """
    if not devices:
        return "32-true", "as there is no device"
    if all(map(has_fast_bfloat16, devices)):
        return "bf16-mixed", f"as {_name(devices[0])} has units for bfloat16"
    slow = next(device for device in devices if not has_fast_bfloat16(device))
    if all(map(has_tensor_cores, devices)):
        return "16-mixed", f"as {_name(slow)} has units for float16, but not for bfloat16"
    return "32-true", f"as {_name(slow)} has no units for bfloat16"


def compare_precision(trainer: Trainer, run: RunFolder) -> None:
    """Say so if ``auto`` has chosen another precision than the one that a run was trained with so far.

    Args:
        trainer: The Trainer that continues it.
        run: The run.
    """
    made = read_or_set_aside(run.provenance)
    newest = [made, *(made.get("continued") or [])][-1]
    then = (newest.get("hardware") or {}).get("precision")
    if then is not None and then != str(trainer.precision):
        rank_zero_info(f"Precision: {run.name} was trained with {then} so far; name it to go on with it")


def _check_divided(precision: Any, strategy: Any) -> None:
    if precision not in UNSCALED:
        name = strategy if isinstance(strategy, str) else type(strategy).__name__
        raise UserError(
            f"trainer.precision: {precision} does not go with trainer.strategy {name}; use "
            f"{', '.join(UNSCALED[:4])}, or trainer.strategy ddp"
        )


def _set_tf32(wanted: bool, device: torch.device) -> None:
    """Switch TF32 on or off in this process, for products of matrices and convolutions.

    By the older of torch's two ways (2.10 to 2.15): after the newer one, ``fp32_precision``, Lightning (2.6.6) fails
    where it asks for the precision of products.
    """
    if wanted and not has_tf32(device):
        rank_zero_info(f"trainer.tf32: {_name(device)} has no units for TF32, so it changes nothing here")
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    torch.backends.cudnn.allow_tf32 = wanted


def _has_precision(plugins: Any) -> bool:
    named = plugins if isinstance(plugins, list | tuple) else [plugins]
    return any(isinstance(plugin, Precision) for plugin in named)


def _devices(accelerator: Any, devices: Any) -> list[torch.device]:
    """Return the devices of this machine that Lightning is going to use; without an index where there is one."""
    name = accelerator_name(accelerator)
    if name != "cuda" or not CUDAAccelerator.is_available():
        return [torch.device(name if name in ("cpu", "mps") else "meta")]
    count = CUDAAccelerator.auto_device_count()
    numbers = range(count) if devices == "auto" else CUDAAccelerator.parse_devices(devices) or []
    return [torch.device("cuda", number) for number in numbers]


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"cpu": "this CPU", "mps": "this GPU"}.get(device.type, "the device")
