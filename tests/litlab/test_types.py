"""Types of numbers with bounds: what they refuse, and that nothing but plain numbers comes out of
the parser.
"""

import io
import re
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser

from litlab.types import (
    ClosedUnitInterval,
    HalfOpenUnitInterval,
    OpenUnitInterval,
    PositiveFloat,
    PositiveInt,
    bounded,
)

TYPES = {
    "size": PositiveInt,
    "rate": PositiveFloat,
    "share": HalfOpenUnitInterval,
    "limit": PositiveInt | None,
    "widths": list[PositiveInt],
    "pair": tuple[ClosedUnitInterval, OpenUnitInterval],
    "kernel": bounded(int, ">= 3", "<= 7"),
}


def parse(line: str) -> dict[str, Any]:
    parser = ArgumentParser(exit_on_error=False)
    for name, kind in TYPES.items():
        parser.add_argument(f"--{name}", type=kind)
    return vars(parser.parse_args([f"--{flag}" for flag in line.split()]))


def test_what_is_kept_is_plain():
    line = "size=4 rate=1e-3 share=0 limit=null widths=[1,2] pair=[1,0.25] kernel=4"
    kept = parse(line)
    assert kept == {"size": 4, "rate": 1e-3, "share": 0.0, "limit": None, "widths": [1, 2],
                    "pair": (1.0, 0.25), "kernel": 4}  # fmt: skip
    torch.save(kept, stream := io.BytesIO())
    stream.seek(0)
    assert torch.load(stream, weights_only=True) == kept  # nothing but plain numbers


REFUSED = {
    "size=0": "0 is not valid; it must be at least 1",
    "size=1.0": "1.0 is not valid; it must be int",
    "rate=0": "0 is not valid; it must be above 0",
    "rate=.nan": ".nan is not valid; it must be float",
    "share=1": "1 is not valid; it must be at least 0 and below 1",
    "limit=0": "is not valid; it must be at least 1",
    "widths=[4,0]": "0 is not valid; it must be at least 1",
    "pair=[2,0.5]": "2 is not valid; it must be at least 0 and at most 1",
    "kernel=8": "8 is not valid; it must be at least 3 and at most 7",
}


@pytest.mark.parametrize("flag", REFUSED)
def test_what_is_out_of_bounds_is_refused(flag):
    with pytest.raises(ArgumentError, match=re.escape(REFUSED[flag])):
        parse(flag)
