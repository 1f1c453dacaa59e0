"""Quantization-aware training: a fit whose layers round as int8 ones will."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.errors import UserError
from litlab.nn.fake_quantize import LEAST, LINEAR_AND_CONVOLUTIONS, Rounding, share_of
from litlab.parallel.groups import divides_layers


class QAT(Callback):
    """Let linear layers and convolutions round their inputs and weights to int8 while they are trained.

    Meant to fine-tune a run (``--init_from``) for a few epochs before ``export --quantize int8-static``. Training and
    validation within ``fit`` see the rounded layers, so what is monitored is about what the int8 model will do. The
    weights themselves stay float32 and keep their names; ``test`` and ``predict`` compute with these. Ranges of the
    inputs are kept in checkpoints. See `litlab.nn.fake_quantize.Rounding`.

    Raises:
        UserError: At the start of a fit, if such layers hold less than half of the weights, or on MPS.
    """

    def __init__(self) -> None:
        self._roundings: dict[str, Rounding] = {}  # by the names of the layers
        self._saved: dict[str, Any] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Change the layers, and say how many."""
        if stage != "fit":
            return
        if trainer.strategy.root_device.type == "mps":
            raise UserError("trainer.callbacks: QAT can't round on Apple's GPUs; set trainer.accelerator to cpu")
        if divides_layers(trainer.strategy):
            raise UserError(
                "trainer.callbacks: QAT rounds the weights of whole layers, and trainer.strategy divides them "
                "(tensor_parallel_size); leave QAT out, or use ddp"
            )
        network: nn.Module = getattr(pl_module, "network", pl_module)
        share, other = share_of(network, LINEAR_AND_CONVOLUTIONS)
        if share < LEAST:
            raise UserError(
                "trainer.callbacks: QAT is for linear layers and convolutions, and most of the weights are those of "
                f"{other}, which would stay as they are; leave it out"
            )
        for name, layer in pl_module.named_modules():
            if type(layer) in LINEAR_AND_CONVOLUTIONS and "forward" not in vars(layer):
                layer.forward = self._roundings[name] = Rounding(layer)
        rank_zero_info(f"QAT: {len(self._roundings)} layers with {share:.0%} of the weights round to int8.")

    def state_dict(self) -> dict[str, Any]:
        """Return the ranges by the names of the layers."""
        return {name: rounding.range for name, rounding in self._roundings.items()} or self._saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the ranges of a checkpoint."""
        self._saved = state_dict
        for name, rounding in self._roundings.items():
            if name in state_dict:
                rounding.range = state_dict[name]

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was found."""
        self._restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Do so after a fit that failed, too."""
        self._restore()

    def _restore(self) -> None:
        self._saved = self.state_dict()
        for rounding in self._roundings.values():
            del rounding.layer.forward
        self._roundings = {}
