"""Random numbers for the samples of a batch, each a pure function of (seed, epoch, number of the sample, kind of draw).

They depend neither on the other samples of the batch, nor on the process, nor on what was drawn before: a resumed run
repeats them exactly.
"""

import hashlib

import torch
from torch import Tensor

from litlab.util.splitmix import GOLDEN, MIX_1, MIX_2, mix

STREAMS = ("crop_y", "crop_x", "flip", "cutout_y", "cutout_x", "brightness", "contrast", "saturation")


def draws(index: Tensor, seed: int, epoch: int, fixed: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Draw one 24-bit integer per sample and stream.

    Args:
        index: Number of each sample, int64 of shape (batch,).
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        fixed: Streams that draw the same in every epoch.

    Returns:
        For each of `STREAMS` int64 of shape (batch,), uniform in [0, 2**24).
    """
    keys = [_key(seed, 0 if stream in fixed else epoch + 1, number) for number, stream in enumerate(STREAMS)]
    return dict(zip(STREAMS, _draw(index, keys), strict=True))


def uniform(index: Tensor, seed: int, epoch: int, name: str) -> Tensor:
    """Draw one number per sample for a stream of any name.

    Args:
        index: Number of each sample, int64 of shape (batch,).
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        name: Name of the stream; streams of other names are independent.

    Returns:
        float32 of shape (batch,), uniform in [0, 1).
    """
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    return _draw(index, [_key(seed, epoch + 1, number)])[0].float() * 2**-24


def _key(seed: int, epoch: int, stream: int) -> int:
    key = mix((seed * GOLDEN + 1) % 2**64)
    key = mix((key + epoch * GOLDEN) % 2**64)
    return _signed(mix((key + stream * GOLDEN) % 2**64))


def _draw(index: Tensor, keys: list[int]) -> Tensor:
    """24-bit integers of shape (key, batch)."""
    x = index * _signed(GOLDEN) + torch.tensor(keys).to(index.device, non_blocking=True)[:, None]
    # The finaliser of splitmix. `>>` keeps the sign of an int64, hence the masks.
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _signed(MIX_1)
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _signed(MIX_2)
    return (x >> 40) & (2**24 - 1)


def _signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit integer: torch multiplies modulo 2**64 all the same."""
    return value - 2**64 if value >= 2**63 else value
