"""CSV files that are whole or not there."""

import csv
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from project.errors import UserError


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file of predictions.

    Args:
        path: The file; one that is there is replaced, in one step.
        header: Names of the columns.
        rows: Their values.

    Raises:
        UserError: The file can't be written.
    """
    staging = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", newline="", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as stream:
            staging = Path(stream.name)
            writer = csv.writer(stream)
            writer.writerow(header)
            writer.writerows(rows)
            stream.flush()
            os.fsync(stream.fileno())
        staging.chmod(0o644)  # temporary files are private
        os.replace(staging, path)
    except OSError as error:
        raise UserError(f"{path}: the predictions can't be written ({error.strerror})") from error
    finally:
        if staging is not None:
            staging.unlink(missing_ok=True)
