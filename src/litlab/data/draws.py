"""Random numbers of samples, which follow from seed, epoch and number of the sample alone."""

import hashlib

import torch
from torch import Tensor

# The constants of splitmix64 as int64: torch multiplies modulo 2**64 all the same.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def uniform(index: Tensor, seed: int, epoch: int, *names: str) -> Tensor:
    """Draw one number per sample and name: a pure function of these, the seed and the epoch.

    It depends neither on the other samples of the batch, nor on the process, nor on what was drawn
    before: a resumed run repeats it exactly.

    Args:
        index: Number of each sample, int64 of shape (batch,).
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        *names: What is drawn; draws of different names are independent.

    Returns:
        float32 of shape (name, batch), uniform in [0, 1).
    """
    # A key of 64 bits for each name, by a hash that is the same on all machines, unlike `hash`
    texts = [f"{seed} {epoch} {name}".encode() for name in names]
    digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    keys = torch.tensor([int.from_bytes(digest, "big", signed=True) for digest in digests])
    x = index * _GOLDEN + keys.to(index.device, non_blocking=True)[:, None]
    # The finaliser of splitmix. `>>` keeps the sign of an int64, hence the masks.
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _MIX_1
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _MIX_2
    # The upper 24 bits, as many as float32 can hold of a number below 1
    return ((x >> 40) & (2**24 - 1)).float() * 2**-24
