"""The random number generators of a process: seeded by place, saved and restored."""

import os
import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from torch import Generator

from litlab.checkpointing.internals import mps_generator
from litlab.parallel.groups import data_ranks
from litlab.util.splitmix import GOLDEN, mix


class RandomState:
    """Torch's generators (of the CPU and the device), numpy's and Python's.

    Args:
        trainer: The trainer whose device and rank they belong to.
    """

    def __init__(self, trainer: Trainer) -> None:
        device = trainer.strategy.root_device
        self._generators: dict[str, Generator] = {"cpu": torch.default_generator}
        if device.type == "cuda":
            self._generators["cuda"] = torch.cuda.default_generators[device.index]
        elif device.type == "mps":
            self._generators["mps"] = mps_generator()
        seed = int(os.environ.get("PL_GLOBAL_SEED") or torch.initial_seed())  # what seed_everything was given
        self._seed = _next(_next(seed) + data_ranks(trainer)["rank"])  # those that share layers drop the same values

    def seed_of(self, epoch: int, place: int) -> int:
        """Return a seed that follows from (seed, rank, epoch, place) alone.

        Args:
            epoch: The epoch.
            place: A number within the epoch, below 2**40.
        """
        return _next(self._seed + (epoch << 40) + place)

    def seed_torch(self, seed: int) -> None:
        """Seed torch's generators, which takes 1 µs each.

        ``torch.manual_seed`` takes 170 µs where there is no GPU (torch 2.15): it keeps each call, with its stack, for a
        later initialisation of CUDA.
        """
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def seed_all(self, seed: int) -> None:
        """Seed all generators."""
        self.seed_torch(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)

    def state(self) -> dict[str, Any]:
        """Return the state of all generators, as ``weights_only=True`` loads it."""
        kind, words, *rest = np.random.get_state(legacy=True)
        states = {device: generator.get_state() for device, generator in self._generators.items()}
        return {**states, "numpy": [kind, list(map(int, words)), *rest], "python": random.getstate()}

    def restore(self, states: dict[str, Any]) -> None:
        """Restore the state of all generators; one of a device that was not there before stays as it is."""
        for device, generator in self._generators.items():
            if device in states:
                generator.set_state(states[device])
        kind, words, *rest = states["numpy"]
        np.random.set_state((kind, np.array(words, dtype=np.uint32), *rest))
        random.setstate(states["python"])


def _next(state: int) -> int:
    return mix((state + GOLDEN) % 2**64)
