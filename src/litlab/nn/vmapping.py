"""What torch.func.vmap can't compute."""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase


def why_not_vmap(network: nn.Module) -> str | None:
    """Return why vmap can't take a network, as far as its parts show it; None where nothing does.

    Args:
        network: The network, as it is now: some callbacks change its parts when a fit starts.
    """
    for part in network.modules():
        name = type(part).__name__
        if isinstance(part, nn.RNNBase):
            return f"it has no rule for {name}"
        if isinstance(part, _NormBase) and part.track_running_stats:
            return f"{name} changes its running statistics in place"
        if "forward" in vars(part):
            return f"a callback has replaced the forward of {name}"
    return None


def refused_by_vmap(error: RuntimeError) -> bool:
    """Return whether an error is that vmap, or torch.func within it, can't compute something."""
    return any(words in str(error) for words in ("vmap", "Batching rule", "torch.func"))
