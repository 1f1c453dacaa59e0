"""Standard output and standard error that may go away: the reader of a pipe exits, a terminal is closed."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe, the terminal
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk of a log file


def survive_lost_readers(arguments: Sequence[str]) -> None:
    """Let the process run on when nobody can read its output any more.

    A write to a pipe without a reader, or to a terminal that is closed, would raise in whatever code happens to print:
    in the middle of a step, or in a logging handler. Here it switches the descriptor to the null device instead, for
    this process and all that it starts later. Call it before anything else is imported: handlers of `logging` keep the
    stream that they find.

    Args:
        arguments: The verb and what follows it. A training run or a server continues even if the disk of its log file
            is full, and says once on standard error that its output is dropped. Any other verb then ends with an error.
    """
    for descriptor in (0, 1, 2):
        _open_if_closed(descriptor)
    asks = any(argument.endswith("help") or argument.startswith("--print_config") for argument in arguments)
    works = bool(arguments) and arguments[0] in ("fit", "sweep", "bench", "reproduce", "serve") and not asks
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = sys.__stderr__ = _surviving(sys.stderr, 2, lambda error: None)
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        sys.stdout = sys.__stdout__ = _surviving(sys.stdout, 1, _say_so if works else _end_if_full)


class SurvivingFile(io.FileIO):
    """A descriptor to write to that becomes the null device once it can't be written to.

    Args:
        descriptor: The open descriptor. It stays open when this object is closed.
        lost: Called with the error when that happens, which is once.
    """

    def __init__(self, descriptor: int, lost: Callable[[OSError], None]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._lost = lost

    def write(self, data: "ReadableBuffer") -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write, or drop what can't be written.

        Raises:
            OSError: If writing fails for another reason.
        """
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE + FULL:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            self._lost(error)
            return memoryview(data).nbytes


def _surviving(stream: TextIO | None, descriptor: int, lost: Callable[[OSError], None]) -> TextIO:
    file = SurvivingFile(descriptor, lost)
    if not isinstance(stream, io.TextIOWrapper):  # it was closed when the process began
        return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors="backslashreplace")
    stream.flush()
    return io.TextIOWrapper(
        file if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _open_if_closed(descriptor: int) -> None:
    """Open the null device in place of a closed standard descriptor, which the next file would get otherwise."""
    try:
        os.fstat(descriptor)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != descriptor:
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
        os.set_inheritable(descriptor, True)


def _say_so(error: OSError) -> None:
    _to_standard_error(f"Standard output can't be written to ({error.strerror}): the rest of it is dropped.")


def _end_if_full(error: OSError) -> None:
    if error.errno in FULL:
        _to_standard_error(f"error: standard output can't be written to: {error.strerror}.")
        raise SystemExit(1)


def _to_standard_error(line: str) -> None:
    # Not through sys.stderr: this is called in the middle of a write, which may hold the locks of a progress bar.
    with contextlib.suppress(OSError):  # nobody may be there to read this either
        os.write(2, f"{line}\n".encode())
