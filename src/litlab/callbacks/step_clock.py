"""Which part of a training step the time goes to."""

import time
from collections.abc import Callable

LOADER, COPY, TRANSFORM = "waiting for data", "copying to the device", "transform"
FORWARD, BACKWARD, CLIPPING, OPTIMIZER = "forward", "backward", "gradient clipping", "optimizer"
HOOKS, OTHER = "callbacks and logging", "other"
PARTS = (LOADER, COPY, TRANSFORM, FORWARD, BACKWARD, CLIPPING, OPTIMIZER, HOOKS, OTHER)

# By the method that an action of Lightning (2.6.6) names last, as in "[Strategy]DDPStrategy.backward".
METHODS = {
    "train_dataloader_next": LOADER,
    "batch_to_device": COPY,
    "transfer_batch_to_device": COPY,
    "on_before_batch_transfer": TRANSFORM,
    "on_after_batch_transfer": TRANSFORM,
    "training_step": FORWARD,
    "backward": BACKWARD,
    "configure_gradient_clipping": CLIPPING,
    "optimizer_step": OPTIMIZER,
    "optimizer_zero_grad": OPTIMIZER,
    "lr_scheduler_step": OPTIMIZER,
}


def method_of(action: str) -> str:
    """Return the method that an action of Lightning's profilers is named for, such as ``training_step``."""
    return action.rpartition(".")[2]


def part_of(action: str) -> str | None:
    """Return the part of a step that an action belongs to; None for one that is part of what surrounds it.

    Args:
        action: Name of an action of Lightning's profilers.
    """
    part = METHODS.get(method_of(action))
    if part is None and (action.startswith("[Callback]") or method_of(action).startswith("on_")):
        return HOOKS
    return part


class StepClock:
    """Share out time among parts: each moment that it runs belongs to exactly one of them.

    Args:
        wait: Called before the clock is read, to wait for work that a device still does for the part that ends.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._wait = wait
        self._part: str | None = None
        self._since = 0.0

    def switch(self, part: str | None) -> None:
        """Count the time from now on to a part, or to none.

        Args:
            part: Any name.
        """
        if part == self._part:
            return
        self._wait()
        now = time.perf_counter()
        if self._part is not None:
            self.seconds[self._part] = self.seconds.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())
