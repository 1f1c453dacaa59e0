"""Quantization-aware training: a fit whose layers round as int8 ones will.

Lightning has none any more, and torchao's is for linear layers with scales that depend on the batch; int8-static export
has convolutions and fixed scales.
"""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.nn.fake_quantize import LINEAR_AND_CONVOLUTIONS, Rounding


class QAT(Callback):
    """Let linear layers and convolutions round their inputs and weights to int8 while they are trained.

    Meant to fine-tune a run (``--init_from``) for a few epochs before ``export --quantize int8-static``. Training and
    validation within ``fit`` see the rounded layers, so what is monitored is about what the int8 model will do. The
    weights themselves stay float32 and keep their names; ``test`` and ``predict`` compute with these. Ranges of the
    inputs are kept in checkpoints. See `litlab.nn.fake_quantize.Rounding`.

    """

    part_of_step = True

    def __init__(self) -> None:
        self._roundings: dict[str, Rounding] = {}  # by the names of the layers

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        self._roundings = {}
        for name, layer in pl_module.named_modules():
            if type(layer) in LINEAR_AND_CONVOLUTIONS:
                layer.forward = self._roundings[name] = Rounding(layer)

    def state_dict(self) -> dict[str, Any]:
        """Return the ranges by the names of the layers."""
        return {name: rounding.range for name, rounding in self._roundings.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, rounding in self._roundings.items():
            rounding.range = state_dict.get(name)

    def teardown(self, *_: Any, **__: Any) -> None:
        """Leave the module as it was found."""
        for rounding in self._roundings.values():
            vars(rounding.layer).pop("forward", None)

    on_exception = teardown
