"""What exporters tell their own developers, left out."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """Leave out progress and warnings that are not about the model."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.utils.cpp_extension")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            for text in (
                "The tensor attributes? .* assigned during export",
                "To copy construct",
                "_check_is_size",
                "No complete tensor found in the group",  # pt2, of weights in channels_last: they are saved whole
            ):
                warnings.filterwarnings("ignore", message=text)
            warnings.filterwarnings("ignore", category=FutureWarning, module="torch|onnxscript|<eval")
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch|onnxscript")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
