"""Types of numbers with bounds: what they refuse, and that nothing but plain numbers comes out of
the parser.
"""

import io
import re

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch.core.mixins import HyperparametersMixin

from litlab.types import (
    ClosedUnitInterval,
    HalfOpenUnitInterval,
    NonNegativeInt,
    OpenUnitInterval,
    PositiveFloat,
    PositiveInt,
    bounded,
)

Kernel = bounded(int, ">= 3", "<= 7")


class Settings(HyperparametersMixin):
    """Settings of every kind.

    Args:
        size: A size.
    """

    def __init__(
        self,
        size: PositiveInt = 8,
        rate: PositiveFloat = 0.1,
        share: HalfOpenUnitInterval = 0.5,
        limit: PositiveInt | None = None,
        widths: list[PositiveInt] | None = None,
        pair: tuple[ClosedUnitInterval, OpenUnitInterval] = (0.0, 0.5),
        workers: NonNegativeInt = 0,
        kernel: Kernel = 5,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()


def parser() -> ArgumentParser:
    made = ArgumentParser(exit_on_error=False)
    made.add_subclass_arguments(Settings, "data", default=f"{__name__}.Settings")
    return made


def test_what_is_kept_is_plain():
    made = parser()
    flags = "size=4 rate=1e-3 share=0 limit=9 widths=[1,2] pair=[1,0.25] kernel=4".split()
    kept = dict(
        made.instantiate(made.parse_args([f"--data.{flag}" for flag in flags])).data.hparams
    )
    assert kept == {"size": 4, "rate": 1e-3, "share": 0.0, "limit": 9, "widths": [1, 2],
                    "pair": (1.0, 0.25), "workers": 0, "kernel": 4}  # fmt: skip
    torch.save(kept, stream := io.BytesIO())
    stream.seek(0)
    assert torch.load(stream, weights_only=True) == kept  # nothing but plain numbers


REFUSED = {
    "size=0": "0 is not valid; it must be at least 1",
    "size=1.0": "1.0 is not valid; it must be int",
    "size=true": "true is not valid; it must be int",
    "rate=0": "0 is not valid; it must be above 0",
    "rate=.nan": ".nan is not valid; it must be float",
    "share=1": "1 is not valid; it must be at least 0 and below 1",
    "share=-0.1": "-0.1 is not valid; it must be at least 0 and below 1",
    "workers=-1": "-1 is not valid; it must be at least 0",
    "limit=0": "is not valid; it must be at least 1",
    "widths=[4, 0]": "0 is not valid; it must be at least 1",
    "pair=[2, 0.5]": "2 is not valid; it must be at least 0 and at most 1",
    "kernel=8": "8 is not valid; it must be at least 3 and at most 7",
}


@pytest.mark.parametrize("flag", REFUSED)
def test_what_is_out_of_bounds_is_refused(flag):
    with pytest.raises(ArgumentError, match=re.escape(REFUSED[flag])):
        parser().parse_args([f"--data.{flag}"])
