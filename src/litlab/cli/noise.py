"""Messages of libraries that are left out, as nobody can do anything about them here."""

import logging
import warnings

TIPS = (
    "litlogger",
    "configured with model summary callbacks",
    "stopped: `max_epochs=",
    "configured so 100%",
    # The run says its precision, and which checkpoint was loaded.
    "Automatic Mixed Precision (AMP)",
    "TPU available",
    "Restoring states from",
)
WARNINGS = (
    # torchao, when it compiles its step.
    "OptimState8bit does not implement",
    # Lightning, as torchao keeps learning rates in tensors.
    "To copy construct from a tensor",
    # Batches come from memory.
    ".*does not have many workers",
    # The summary counts, it need not weigh.
    ".*not supported by the model summary",
    # That of a resumed run does.
    "Checkpoint directory .* exists",
    # Lightning with torch's pytree.
    ".*LeafSpec.*",
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
