"""The CIFAR experiment's optimizer."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from litlab.optim import Muon
from litlab.types import HalfOpenUnitInterval, NonNegativeFloat, PositiveFloat, PositiveInt


class CifarMuon(Muon):
    """`Muon` for filters and Nesterov SGD for the rest, at the rates of `WhitenedCNN`.

    Its norms have no scale and its logits are scaled down; other networks need far lower rates for
    the rest.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: PositiveFloat = 0.12,
        rest_lr: PositiveFloat = 0.4,
        vector_lr: PositiveFloat = 26.0,
        momentum: HalfOpenUnitInterval = 0.6,
        rest_momentum: HalfOpenUnitInterval = 0.85,
        weight_decay: NonNegativeFloat = 0.0025,
        iterations: PositiveInt = 3,
        **settings: Any,
    ) -> None:
        super().__init__(
            params, unit_norm=True, rest="sgd", lr=lr, rest_lr=rest_lr, vector_lr=vector_lr,
            momentum=momentum, rest_momentum=rest_momentum, weight_decay=weight_decay,
            iterations=iterations, **settings,
        )  # fmt: skip
