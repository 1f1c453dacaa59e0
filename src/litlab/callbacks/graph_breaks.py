"""Where torch.compile breaks the graph or compiles again, as PyTorch logs it; and what to do where it may not."""

import logging
import re
from pathlib import Path

import torch

from litlab.errors import first_line

LOGGER = logging.getLogger("torch._dynamo")


class GraphBreakLog(logging.FileHandler):
    """Write PyTorch's log of graph breaks and recompilations to a file while it is open, and count them.

    It is the log of ``TORCH_LOGS=graph_breaks,recompiles``: of the real batches of the real run, each with the line of
    the model and the reason. PyTorch prints it to stderr as well.

    Args:
        path: The file; a log that is there is continued.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self.breaks = self.recompilations = 0
        LOGGER.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a break or a recompilation; leave out what else the compiler logs."""
        is_break, is_recompilation = (record.name.endswith(name) for name in ("__graph_breaks", "__recompiles"))
        self.breaks += is_break
        self.recompilations += is_recompilation
        if is_break or is_recompilation:
            super().emit(record)

    def finish(self) -> str:
        """Close the file, after a summary, and return the summary."""
        summary = f"torch.compile: {self.breaks} graph break(s), {self.recompilations} recompilation(s)"
        super().emit(logging.makeLogRecord({"msg": summary}))
        LOGGER.removeHandler(self)
        self.close()
        return summary


def log_graph_breaks(on: bool) -> None:
    """Switch PyTorch's log of graph breaks and recompilations on or off; where TORCH_LOGS is set, that decides."""
    torch._logging.set_logs(graph_breaks=on, recompiles=on)  # pyright: ignore[reportPrivateImportUsage]


def fullgraph_advice(error: BaseException) -> str | None:
    """Return one line of advice on what PyTorch raises only where ``compile.fullgraph`` is set; None for all else."""
    if type(error).__module__ != "torch._dynamo.exc":
        return None
    if type(error).__name__ == "FailOnRecompileLimitHit":
        return (
            "compile.fullgraph: true leaves no way on after the last compilation that PyTorch allows one function, see "
            "above; set compile.dynamic: true, or compile.fullgraph: false"
        )
    if type(error).__name__ != "Unsupported":
        return None
    lines = re.findall(r'File "(.*)", line (\d+), in', str(error).partition("from user code")[2])
    where = f" ({lines[-1][0]}, line {lines[-1][1]})" if lines else ""
    return (
        f"compile.fullgraph: true, but the graph breaks: {first_line(error)}{where}; change that line, set "
        "compile.fullgraph: false, or name other parts in compile.children"
    )
