"""The user's files as pandas frames: one way to read them, for training, prediction and serving.

Cells of a CSV file stay texts until `read_table` reads them as what a column is, so that a message
can show what is there. The index of a frame is the row as a spreadsheet counts it: in a CSV or
Excel file 1 is the row of names.
"""

import io
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.split import SPLITS
from litlab.errors import UserError, first_line
from litlab.util.text import nearest, some

# A pandas.DataFrame: a type checker gets lost in the many types that pandas' methods may return
Frame = Any
Column = Any  # a pandas.Series
Source = str | Path | bytes | Frame
if TYPE_CHECKING:
    UserFile = str | Path | Frame
else:
    UserFile = str  # what the command line takes

Policy = Literal["error", "drop"]
_DELIMITERS = ",;\t|"
_NAMED = 3  # bad rows that a message names
_GROUPS = r"(?<=\d)\.(?=\d{3}(?:\D|$))"  # points between thousands, in 1.234.567,8
_OFFSET = r"(:\d\d(?:\.\d+)?)\s*(?:Z|[+-]\d\d:?\d\d)$"  # behind a time of day, which is its group
_MOST = {"input": 1, "target": 20, "series": 0}  # different numbers that stand for categories
# Kinds of columns in which cells may be missing
_MAY_LACK = ("input", "series", "number", "category")


@dataclass(frozen=True)
class FileFormat:
    """How the cells of a file are written.

    Args:
        delimiter: What separates the cells of a CSV file; None: the one of comma, semicolon, tab
            and bar that makes the most columns.
        decimal: The decimal sign of numbers.
        missing: Words that stand for a missing value, beside those of pandas (nothing, NA, N/A,
            NaN, None, null, ...).
        time_format: How times are written, such as ``%d/%m/%Y %H:%M``; None: in a form that can't
            be misread.
    """

    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    missing: tuple[str, ...] = ()
    time_format: str | None = None


def name_source(source: Source, setting: str) -> str:
    """Return what messages call a source: its path, or the setting where there is none."""
    return str(source) if isinstance(source, str | Path) else setting


def read_frame(
    source: Source,
    form: FileFormat = FileFormat(),
    *,
    setting: str = "data.path",
    names: list[str] | None = None,
    bad_rows: Policy = "error",
) -> Frame:
    """Read a table: CSV in UTF-8 (gzipped too), Parquet, Excel or JSON lines, by the end of its
    name.

    Args:
        source: The file; or the bytes of a CSV file; or a frame, which is copied.
        form: How its cells are written.
        setting: Where the file's name comes from, for messages.
        names: Names of the columns, where a CSV file has no row of names.
        bad_rows: Whether rows with too many cells are an error or left out.

    Returns:
        A frame without empty rows. Cells of CSV files are texts without spaces at their ends;
        missing ones are NaN.

    Raises:
        UserError: It is missing, unreadable or empty, or two columns have the same name.
    """
    import pandas as pd
    from pandas.io.parsers.readers import STR_NA_VALUES

    where = name_source(source, setting)
    suffix = Path(where).suffix.lower()
    keep: Any = {"dtype": False}
    readers: dict[str, Callable[..., Frame]] = {
        ".parquet": pd.read_parquet,
        ".xlsx": pd.read_excel,
        ".jsonl": partial(pd.read_json, lines=True, **keep),  # texts stay texts
    }
    read_text = partial(_read_csv, form=form, where=where, names=names, bad_rows=bad_rows)
    if isinstance(source, pd.DataFrame):
        frame: Frame = source.copy()
    else:
        file: Any = source if isinstance(source, bytes) else check_file(source, setting)
        try:
            frame = readers.get(suffix, read_text)(file)
        except (
            ValueError,
            OSError,
            EOFError,
            ImportError,
        ) as error:  # pandas' errors of parsing are ValueErrors
            raise UserError(f"{where}: it can't be read ({first_line(error)})") from error
    has_header = (
        not isinstance(source, pd.DataFrame) and suffix not in (".parquet", ".jsonl") and not names
    )
    frame.index = pd.RangeIndex(1, 1 + len(frame)) + has_header

    frame = frame.rename(columns=lambda name: str(name).strip())
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise UserError(f"{where}: two columns are called {twice[0]!r}; rename one")
    words = {*form.missing, *STR_NA_VALUES}
    for name, column in frame.select_dtypes(["object", "string"]).items():
        texts = column.where(column.isna(), column.astype(str).str.strip())
        frame[name] = texts.mask(texts.isin(words))
    frame = frame.dropna(how="all")
    if frame.empty:
        raise UserError(f"{where}: there are no rows; give one for each sample")
    return frame


def _read_csv(
    source: Path | bytes, form: FileFormat, where: str, names: list[str] | None, bad_rows: Policy
) -> Frame:
    """Read a CSV file as texts. Columns without a name, in which some programs number the rows, are
    left out.
    """
    import pandas as pd

    def read(sign: str, **options: Any) -> Frame:
        return pd.read_csv(
            io.BytesIO(source) if isinstance(source, bytes) else source,
            sep=sign,
            # Else pandas cuts rows with too many cells, and renames columns of the same name
            header=None,
            dtype=str,
            encoding="utf-8-sig",
            keep_default_na=False,
            skip_blank_lines=False,
            on_bad_lines="error" if bad_rows == "error" else "warn",
            **options,
        )

    # The delimiter is what cuts the first row into the most cells.
    delimiter = form.delimiter or max(_DELIMITERS, key=lambda sign: read(sign, nrows=1).shape[1])
    frame = read(delimiter)
    if names and len(names) != frame.shape[1]:
        raise UserError(
            f"data.columns: it names {len(names)} columns, and {where} has "
            f"{frame.shape[1]}; name each"
        )
    frame.columns = names or frame.iloc[0].fillna("")
    frame = frame if names else frame.iloc[1:]
    return frame.loc[:, [bool(str(name).strip()) for name in frame.columns]]


def read_table(
    source: Source,
    kinds: Mapping[str, str | None],
    form: FileFormat = FileFormat(),
    *,
    others: str | None = None,
    setting: str = "data.path",
    bad_rows: Policy = "error",
) -> Frame:
    """Read a table as `read_frame` does, and each of its columns as what it is.

    Rows in which a cell can't be read are errors or left out. In a column of numbers or categories
    cells may be missing; in a target, and where a row belongs, they may not.

    Args:
        source: As of `read_frame`.
        kinds: For each column that has to be there, what it is. Those of a "number" are read as
            float64, those of a "category" as texts, "time" as of `read_times`. An "input" and a
            column of a "series" hold what most of their cells are. So does a "target", unless it is
            one for "classification" or "regression". A column that says where a row belongs goes by
            its setting, such as "group_column". None: it is left out.
        form: How the cells are written.
        others: What the other columns are.
        setting: Where the file's name comes from, for messages.
        bad_rows: Whether rows that can't be used are errors or left out.

    Raises:
        UserError: As of `read_frame`; a column is missing; or there are bad rows which may not be
            left out.
    """
    import pandas as pd

    raw, where = (
        read_frame(source, form, setting=setting, bad_rows=bad_rows),
        name_source(source, setting),
    )
    check_columns(raw, where, dict.fromkeys(kinds, "correct it, or the setting that names it"))
    columns, problems = {}, {}
    for name, cells in raw.items():
        kind = kinds.get(name, others)
        if kind is None:
            continue
        column = columns[name] = _read_column(cells, kind, form, where)
        is_bad = column.isna() & (cells.notna() | (kind not in _MAY_LACK))
        reason = ", not a number" if column.dtype == "float64" else ""
        for row, cell in cells[is_bad].astype("string").fillna("missing").items():
            problems.setdefault(row, f"{name!r} is {cell}{reason}")
    return drop_bad_rows(pd.DataFrame(columns), problems, bad_rows, where)


def _read_column(cells: Column, kind: str, form: FileFormat, where: str) -> Column:
    numbers, wrong = to_numbers(cells, form, where)
    if kind in _MOST and cells.dtype != "category" and numbers.notna().sum() > wrong.sum():
        kind = "number" if numbers.nunique() > _MOST[kind] else "category"
    if kind == "time" or (kind == "time_column" and wrong.any()):
        return read_times(cells, form, where)
    if kind in ("number", "regression", "time_column"):
        return numbers
    if kind == "split_column":
        return cells.where(cells.isin(SPLITS))
    # Whole numbers without decimals, though a file may have floats
    return cells.convert_dtypes().astype("string")


def check_file(path: str | Path, setting: str) -> Path:
    """Return the path of a file that the user has named; ``~`` stands for the home directory.

    Raises:
        UserError: There is no such file, or it is a folder, a pipe or a device, which opening would
            never tell.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(
            f"{setting}: {path} is no file"
            if path.exists()
            else f"{setting}: there is no file {path}"
        )
    return path


def check_columns(frame: Frame, where: object, columns: Mapping[str, str]) -> None:
    """Refuse a frame without some columns.

    Args:
        frame: The frame.
        where: What messages call it.
        columns: For each column what to do where it is missing, such as "set --data.target".

    Raises:
        UserError: One is missing; the message has the nearest name.
    """
    for column, remedy in columns.items():
        if column not in frame.columns:
            alike = nearest(column, frame.columns, f"; {remedy}")
            raise UserError(
                f"{where}: there is no column {column!r}, only "
                f"{some(list(map(repr, frame.columns)))}{alike}"
            )


def to_numbers(
    column: Column, form: FileFormat, where: object = "data.path"
) -> tuple[Column, Column]:
    """Read a column as numbers.

    Args:
        column: Of any type; what is no number already is read as text.
        form: How they are written.
        where: What messages call the file.

    Returns:
        float64, NaN where a cell is missing or no finite number; and where the latter is so, as
        bool.

    Raises:
        UserError: Most cells have a decimal comma, and `form` has a point, or the other way round.
    """
    import numpy as np
    import pandas as pd

    cells: Column = column
    if not pd.api.types.is_numeric_dtype(column):
        cells = column.astype("string")
        if form.decimal == ",":  # a point that is left is wrong
            cells = (
                cells.str.replace(_GROUPS, "", regex=True)
                .str.replace(".", "?")
                .str.replace(",", ".")
            )
    numbers: Column = pd.to_numeric(cells, errors="coerce")
    numbers = numbers.astype("float64")
    numbers = numbers.where(np.isfinite(numbers))
    wrong = numbers.isna() & column.notna()

    sign = "," if form.decimal == "." else "."
    has_sign = column[wrong].astype("string").str.fullmatch(rf"[+-]?\d*\{sign}\d+", na=False)
    if has_sign.sum() > len(column) / 2:
        raise UserError(
            f"{where}: column {column.name!r} has another decimal sign, as "
            f"{column[wrong].iloc[0]!r}; set --data.decimal {sign}"
        )
    return numbers, wrong


def read_times(column: Column, form: FileFormat, where: str = "data.path") -> Column:
    """Read a column as times: any form of ISO 8601, dates whose parts can't be confused, or seconds
        since 1970.

    Args:
        column: Texts, numbers or times.
        form: Its `time_format` says how they are written.
        where: What messages call the file.

    Returns:
        datetime64, NaT where there is no time. Times with UTC offsets are in UTC, but where the
        clock on the wall shows the same in all rows, as at midnight: then as it says, since days
        are at equal steps there alone.

    Raises:
        UserError: Day and month could be either way round.
    """
    import pandas as pd

    texts = column.astype("string")
    if texts.dropna().str.fullmatch(r"\d{9,10}(\.\d+)?").all():
        seconds: Column = pd.to_numeric(texts)
        return pd.to_datetime(seconds, unit="s")
    clock = texts.str.replace(_OFFSET, r"\1", regex=True)
    has_offset = clock.ne(texts).fillna(False).astype(bool)
    local = _parse_times(clock, form.time_format, where)
    if not has_offset.any():
        return local
    if local.dt.time.nunique() == 1:
        return local.where(has_offset)
    return pd.to_datetime(texts.where(has_offset), format="ISO8601", errors="coerce", utc=True)


def _parse_times(texts: Column, time_format: str | None, where: str) -> Column:
    import pandas as pd

    times = pd.to_datetime(texts, format=time_format or "ISO8601", errors="coerce")
    if time_format:
        return times
    others = texts[times.isna()]
    parse: Any = partial(pd.to_datetime, others, format="mixed", errors="coerce")
    with warnings.catch_warnings(action="ignore"):  # that each is parsed by itself
        day_first, month_first = parse(dayfirst=True), parse(dayfirst=False)
    unclear = others[day_first.notna() & (day_first != month_first)]
    if len(unclear):
        raise UserError(
            f"{where}: {unclear.iloc[0]!r} in column {texts.name!r} could be day or month first; "
            "set --data.time_format, such as '%d/%m/%Y' or '%m/%d/%Y %H:%M'"
        )
    return times.fillna(month_first)


def drop_bad_rows(
    frame: Frame, problems: Mapping[Hashable, str], policy: Policy, where: object, unit: str = "row"
) -> Frame:
    """Refuse the rows that can't be used, or leave them out and say so.

    Args:
        frame: The frame.
        problems: What is wrong with a row, by its index.
        policy: Whether they are an error or left out.
        where: What messages call the file.
        unit: What a row is called.

    Returns:
        The others.

    Raises:
        UserError: There are some, and they may not be left out, or no others are left.
    """
    if not problems:
        return frame
    rows = [f"{unit} {row} ({problem})" for row, problem in list(problems.items())[:_NAMED]]
    more = f" and {len(problems) - _NAMED:,} more" if len(problems) > _NAMED else ""
    summary = (
        f"{where}: {len(problems):,} of {len(frame):,} {unit}s can't be used: "
        f"{', '.join(rows)}{more}"
    )
    some_are_good = len(problems) < len(frame)
    if policy == "error" or not some_are_good:
        raise UserError(
            f"{summary}; correct or delete them" + ", or use --data.bad_rows drop" * some_are_good
        )
    rank_zero_info(f"{summary}; they are left out (data.bad_rows)")
    return frame.drop(index=list(problems))
