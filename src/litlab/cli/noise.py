"""Messages of libraries that are left out, as nobody can do anything about them here."""

import logging
import warnings
from typing import Any

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
ONCE = ("GPU available",)  # what each Trainer says, also those that try a few steps
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


class DropRepeated(logging.Filter):
    """Lets the first of the messages in `ONCE` pass."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self._seen
        if text.startswith(ONCE):
            self._seen.add(text)
        return is_new


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: Any = None
) -> str:
    """Return a warning as a line that begins with what it says; Python's begins with a path."""
    file = filename.rpartition("site-packages/")[2]
    return f"warning: {message} ({file}:{lineno})\n"


def silence_noise() -> None:
    """Leave these messages out from now on."""
    tips = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    tips.addFilter(lambda record: not any(text in record.getMessage() for text in TIPS))
    tips.addFilter(DropRepeated())
    enums = logging.getLogger("torch.utils._pytree")
    enums.addFilter(lambda record: "is an Enum subclass" not in record.getMessage())
    # CUDA's compiler on a machine without a GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    # LRFinder sets the data up twice.
    warnings.filterwarnings("once", message="The number of training batches", append=True)
