"""Schedulers that are made of others: one after the other, or all at once."""

from bisect import bisect_right
from itertools import pairwise

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, CyclicLR, LRScheduler, OneCycleLR, SequentialLR

from litlab.optim.recipe import Recipe, build_scheduler
from litlab.types import PositiveFloat


class Sequence(SequentialLR):
    """One scheduler after the other: torch's SequentialLR, with parts that YAML can describe.

    Each part starts from the optimizer's own rates. A length that is left out, such as ``T_max``, is that of the part.

    Args:
        optimizer: Its learning rates are driven.
        schedulers: The parts, any class of torch.optim.lr_scheduler but ReduceLROnPlateau, OneCycleLR and CyclicLR.
        milestones: Where each part but the first begins: shares of the length if below 1, numbers of steps if not.
        total_steps: Length. Taken from the run when left out of the YAML.

    Raises:
        ValueError: If the milestones don't fit the parts or the length.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[Recipe],
        milestones: list[PositiveFloat],
        total_steps: int | None = None,
    ) -> None:
        if total_steps is None or total_steps < 1:
            raise ValueError(f"total_steps is {total_steps}: it must be 1 or more")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"milestones: there are {len(milestones)} for {len(schedulers)} schedulers; give one for each but the "
                "first"
            )
        starts = [round(total_steps * place) if place < 1 else int(place) for place in milestones]
        places = [0, *starts, total_steps]
        if places != sorted(places) or len(set(milestones)) < len(milestones):
            raise ValueError(
                f"milestones: {milestones} are steps {starts} of {total_steps}, so a scheduler would never run; let "
                "them rise, up to the length"
            )
        lengths = [max(1, end - start) for start, end in pairwise(places)]  # a run of two steps skips the third part
        parts = _parts(schedulers, optimizer, lengths)
        super().__init__(optimizer, parts, starts)
        first = parts[bisect_right(starts, 0)]
        if first.last_epoch < 0:  # torch 2.10 begins with parts[0], even where that has no steps
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"]
            first._initial_step()
            self._last_lr = first.get_last_lr()
        self.total_steps = total_steps


class Chain(ChainedScheduler):
    """Several schedulers at once, whose factors are multiplied: torch's ChainedScheduler, with parts from YAML.

    Args:
        optimizer: Its learning rates are driven.
        schedulers: The parts, classes of torch.optim.lr_scheduler that change the rate by a factor.
        total_steps: Length, which is that of all parts that leave theirs out. Taken from the run when left out.

    Raises:
        ValueError: If there are no parts, or the length is not given.
    """

    def __init__(self, optimizer: Optimizer, schedulers: list[Recipe], total_steps: int | None = None) -> None:
        if total_steps is None or total_steps < 1:
            raise ValueError(f"total_steps is {total_steps}: it must be 1 or more")
        super().__init__(_parts(schedulers, optimizer, [total_steps] * len(schedulers)), optimizer)
        self.total_steps, self.last_epoch = total_steps, 0

    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Perform a step."""
        super().step()
        self.last_epoch += 1


def _parts(recipes: list[Recipe], optimizer: Optimizer, lengths: list[int]) -> list[LRScheduler]:
    """Build the parts; torch's classes fail, steps later, with one in another.

    OneCycleLR and CyclicLR make other rates of the optimizer's own, which the parts around them would start from.
    """
    parts = []
    for number, (recipe, length) in enumerate(zip(recipes, lengths, strict=True)):
        key = f"schedulers[{number}]"
        parts.append(build_scheduler(recipe, optimizer, length, f"model.schedule.scheduler.{key}"))
        if isinstance(parts[-1], SequentialLR | ChainedScheduler):
            raise ValueError(f"{key}: {type(parts[-1]).__name__} is made of schedulers itself, and can't be a part")
        if isinstance(parts[-1], OneCycleLR | CyclicLR):
            raise ValueError(f"{key}: {type(parts[-1]).__name__} sets rates of its own, and can't be a part")
    return parts
