"""Columns of a table, read as numbers or words."""

from collections.abc import Mapping

from litlab.data.frames import (
    Column,
    FileFormat,
    Frame,
    Policy,
    Source,
    check_columns,
    drop_bad_rows,
    is_mostly_numbers,
    read_frame,
    read_times,
    to_numbers,
)
from litlab.data.split import SPLITS
from litlab.data.tables.serving import TabularMetadata

_INPUTS = ("input", "number", "category")  # kinds of columns in which cells may be missing
_MOST = {"input": 1, "target": 20}  # different numbers that stand for categories


def read_columns(raw: Frame, kinds: Mapping[str, str], form: FileFormat, where: object, bad_rows: Policy) -> Frame:
    """Read columns, and refuse or leave out the rows in which one can't be read.

    Args:
        raw: The cells, as `read_frame` returns them.
        kinds: For each column what it is. Those of a "number" are read as float64, those of a "category" as texts, an
            "input" as what most of its cells are. No cell may be missing in the others: a "target" and those of
            "classification" and "regression", and columns by the setting that names them, such as "time_column".
        form: How the cells are written.
        where: What messages call the table.
        bad_rows: Whether rows that can't be used are errors or left out.
    """
    import pandas as pd

    columns, problems = {}, {}
    for name, kind in kinds.items():
        cells = raw[name]
        column = columns[name] = _read_column(cells, kind, form, where)
        is_bad = column.isna() & (cells.notna() | (kind not in _INPUTS))
        reason = ", not a number" if column.dtype == "float64" else ""
        for row, cell in cells[is_bad].astype("string").fillna("missing").items():
            problems.setdefault(row, f"{name!r} is {cell}{reason}")
    return drop_bad_rows(pd.DataFrame(columns), problems, bad_rows, where)


def _read_column(cells: Column, kind: str, form: FileFormat, where: object) -> Column:
    numbers, wrong = to_numbers(cells, form, where)
    if kind in _MOST and cells.dtype != "category" and is_mostly_numbers(numbers, wrong):
        kind = "number" if numbers.nunique() > _MOST[kind] else "category"
    if kind == "time_column" and wrong.any():
        return read_times(cells, form, where)[0]
    if kind in ("number", "regression", "time_column"):
        return numbers
    if kind == "split_column":
        return cells.where(cells.isin(SPLITS))
    return cells.convert_dtypes().astype("string")  # whole numbers without decimals, though a file may have floats


def read_rows(source: Source, known: TabularMetadata, form: FileFormat, setting: str, bad_rows: Policy) -> Frame:
    """Read the rows that a trained model is to predict; columns that it does not know are left out.

    Args:
        source: As of `read_frame`.
        known: The columns.
        form: How the cells are written.
        setting: What messages call the source.
        bad_rows: Whether rows that can't be used are errors or left out.

    Returns:
        Its columns of numbers, float64, and of categories, texts.
    """
    raw = read_frame(source, form, setting=setting, bad_rows=bad_rows)
    kinds = dict.fromkeys(known.numbers, "number") | dict.fromkeys(known.categories, "category")
    check_columns(raw, setting, dict.fromkeys(kinds, "the model needs it"))
    return read_columns(raw, kinds, form, setting, bad_rows)
