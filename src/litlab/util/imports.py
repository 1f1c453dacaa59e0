"""Importing torch and Lightning without looking for garbage meanwhile."""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pausing_garbage_collection() -> Iterator[None]:
    """Import torch and what comes with it faster, by about a tenth.

    The import makes millions of objects, which all stay. Python (3.11 to 3.13) would look through
    them for garbage again and again while they become more, and once more in each full collection
    of the training: they are frozen, that is, left out.
    """
    # A process that runs one command after the other, as tests do, would freeze their garbage, too.
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        # Triton counts its objects at the end, and reports as leaks those that are still frozen.
        atexit.register(gc.unfreeze)
        gc.enable()
