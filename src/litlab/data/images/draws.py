"""Random numbers for the samples of a batch, each a pure function of (seed, epoch, number of the sample, name).

They depend neither on the other samples of the batch, nor on the process, nor on what was drawn before: a resumed run
repeats them exactly.
"""

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

# The constants of splitmix64 as int64: torch multiplies modulo 2**64 all the same.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def uniform(index: Tensor, seed: int, epoch: int, *names: str) -> Tensor:
    """Draw one number per sample and name.

    Args:
        index: Number of each sample, int64 of shape (batch,).
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        *names: What is drawn; draws of different names are independent.

    Returns:
        float32 of shape (name, batch), uniform in [0, 1).
    """
    x = index * _GOLDEN + _make_keys(seed, epoch, names).to(index.device, non_blocking=True)[:, None]
    # The finaliser of splitmix. `>>` keeps the sign of an int64, hence the masks.
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _MIX_1
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _MIX_2
    return ((x >> 40) & (2**24 - 1)).float() * 2**-24


@lru_cache(maxsize=64)  # the same for all batches of an epoch
def _make_keys(seed: int, epoch: int, names: tuple[str, ...]) -> Tensor:
    digests = [hashlib.blake2b(f"{seed} {epoch} {name}".encode(), digest_size=8).digest() for name in names]
    return torch.tensor([int.from_bytes(digest, "big", signed=True) for digest in digests])
