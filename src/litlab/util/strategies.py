"""What a strategy does with a model."""

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy


def shards(strategy: Strategy) -> bool:
    """Return whether a process may hold a part of the model only: of its weights, gradients or optimizer state."""
    return not isinstance(strategy, SingleDeviceStrategy | DDPStrategy)
