"""Mixed precision that clips gradients wherever that can be done."""

from lightning.pytorch.plugins import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch.optim import Optimizer

from litlab.errors import UserError


class ClippingMixedPrecision(MixedPrecision):
    """Lightning's plugin for mixed precision, with clipping for fused optimizers in bfloat16.

    A fused optimizer divides gradients by the scale itself, in its step, when they have been clipped already. So
    Lightning (2.6.6) refuses to clip for one. But only float16 needs a scale.

    Args:
        precision: ``16-mixed`` or ``bf16-mixed``.
        device: Type of the device.
        scaler: What scales the loss; None: torch's own for ``16-mixed``.

    Raises:
        UserError: In the first step, for a fused optimizer whose gradients are scaled and were to be clipped.
    """

    def clip_gradients(
        self,
        optimizer: Optimizer,
        clip_val: int | float = 0.0,
        gradient_clip_algorithm: GradClipAlgorithmType = GradClipAlgorithmType.NORM,
    ) -> None:
        """Clip the gradients of an optimizer."""
        if clip_val > 0 and self.scaler is not None and optimizer.defaults.get("fused"):
            raise UserError(
                f"trainer.gradient_clip_val: with trainer.precision {self.precision} a fused optimizer unscales the "
                "gradients itself, after they are clipped; set model.optimizer.fused or trainer.gradient_clip_val to "
                "null"
            )
        Precision.clip_gradients(self, optimizer, clip_val, gradient_clip_algorithm)
