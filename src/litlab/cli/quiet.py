"""Silence what Lightning and torchao tell every user at every start, and warnings that do not hold here."""

import logging
import warnings

TIPS = ("litlogger", "configured with model summary callbacks", "stopped: `max_epochs=", "configured so 100%")
WARNINGS = (
    "OptimState8bit does not implement",  # torchao, when it compiles its step
    "To copy construct from a tensor",  # Lightning, as torchao keeps learning rates in tensors
    ".*does not have many workers",  # batches come from memory
    ".*not supported by the model summary",  # it counts, it need not weigh
    "Checkpoint directory .* exists",  # a resumed run's does
    ".*LeafSpec.*",  # Lightning with torch's pytree
)


def silence_noise() -> None:
    """Leave these messages out from now on."""
    tips = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    tips.addFilter(lambda record: not any(text in record.getMessage() for text in TIPS))
    enums = logging.getLogger("torch.utils._pytree")
    enums.addFilter(lambda record: "is an Enum subclass" not in record.getMessage())
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    # LRFinder sets the data up twice.
    warnings.filterwarnings("once", message="The number of training batches", append=True)
