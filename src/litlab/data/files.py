"""The cells of the user's tables as they were written; what they mean is decided elsewhere.

A table is CSV in UTF-8 (gzipped too), Parquet, Excel or JSON lines, by the end of its name. The
index of a frame is the row as a spreadsheet counts it: in a CSV or Excel file 1 is the row of
names.
"""

import io
import json
import re
import shlex
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError, first_line
from litlab.util.text import nearest, plural, some

# A pandas.DataFrame: a type checker gets lost in the many types that pandas' methods may return
Frame = Any
Cells = Any  # a pandas.Series
Source = str | Path | bytes | Frame
if TYPE_CHECKING:
    UserFile = str | Path | Frame
else:
    UserFile = str  # what the command line takes

Policy = Literal["error", "drop"]
_DELIMITERS = ",;\t|"
_NAMED = 3  # bad rows that a message names


@dataclass(frozen=True)
class FileFormat:
    """How the cells of a file are written.

    Args:
        delimiter: What separates the cells of a CSV file; None: the one of comma, semicolon, tab
            and bar that makes the most columns.
        decimal: The decimal sign of numbers.
        thousands: What stands between groups of three digits, as the comma in 1,129.
        missing: Words that stand for a missing value, in any column.
        time_format: How times are written, such as ``%d/%m/%Y %H:%M``; None: in a form that can't
            be misread.
    """

    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    time_format: str | None = None

    def __post_init__(self) -> None:
        if self.thousands == self.decimal:
            raise UserError(
                f"data.thousands: {self.thousands} is the decimal sign, too; set --data.decimal "
                f"{'.' if self.decimal == ',' else ','} or leave data.thousands out"
            )


def name_source(source: Source, setting: str) -> str:
    """Return what messages call a source: its path, or the setting where there is none."""
    return str(source) if isinstance(source, str | Path) else setting


def read_cells(
    source: Source,
    form: FileFormat = FileFormat(),
    *,
    setting: str = "data.path",
    names: list[str] | None = None,
    bad_rows: Policy = "error",
) -> Frame:
    """Read a table.

    Args:
        source: The file; or the bytes of a CSV file; or a frame, which is copied.
        form: How its cells are written.
        setting: Where the file's name comes from, for messages.
        names: Names of the columns, where a CSV or Excel file has no row of names.
        bad_rows: Whether rows with too many cells are an error or left out.

    Returns:
        A frame without empty rows. Cells of CSV files are texts; texts have no spaces at their
        ends, and only empty cells are missing.

    Raises:
        UserError: It is missing, unreadable or empty, or two columns have the same name.
    """
    import pandas as pd

    where = name_source(source, setting)
    frame: Frame
    if isinstance(source, pd.DataFrame):
        frame = _take_index(source)
    else:
        file: Any = source if isinstance(source, bytes) else check_file(source, setting)
        try:
            frame = _read_file(file, form, where, names, bad_rows)
        except (ValueError, OSError, EOFError, ImportError) as error:
            # pandas' errors of parsing and of encoding are ValueErrors; an ImportError is that of
            # openpyxl, which reads Excel files
            is_lacking = isinstance(error, ImportError)
            advice = "install it" if is_lacking else "save it again, texts in UTF-8"
            if isinstance(error, pd.errors.ParserError):
                advice = (
                    "delete what stands above the names of the columns, or use --data.bad_rows "
                    "drop for rows with too many cells"
                )
            raise UserError(f"{where}: it can't be read ({first_line(error)}); {advice}") from error
    # Rows are numbered before any is left out, so that messages point to the row in the file
    frame.index += 1

    # Names of columns are texts, and each is there once: `frame[name]` is one column from here on
    frame = frame.rename(columns=lambda name: str(name).strip())
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise UserError(
            f"{where}: two columns are called {twice[0]!r}; rename one, or add a row of names"
        )

    # Cells without spaces at their ends; what is left of an empty one is missing
    for name, cells in frame.select_dtypes(["object", "string"]).items():
        if cells.dtype == "string":
            stripped = cells.str.strip()
        else:  # not by map, which makes floats of whole numbers
            stripped = [
                _strip(cell, f"{where}: row {row}: {name!r}") for row, cell in cells.items()
            ]
            stripped = pd.Series(stripped, cells.index, dtype=object)
        frame[name] = stripped.replace("", float("nan"))
    frame = frame.dropna(how="all")
    if frame.empty:
        raise UserError(f"{where}: there are no rows; give one for each sample")
    return frame


def _strip(cell: Any, where: str) -> Any:
    if isinstance(cell, list | dict):  # of JSON or Parquet
        raise UserError(f"{where} holds a {type(cell).__name__}; give one value")
    return cell.strip() if isinstance(cell, str) else cell


def _read_file(
    file: Any, form: FileFormat, where: str, names: list[str] | None, bad_rows: Policy
) -> Frame:
    """Return the cells of a file; the index counts its rows from 0, a row of names, too."""
    import pandas as pd

    suffix = Path(where).suffix.lower()
    if suffix == ".parquet":
        import pyarrow.parquet

        # Else pandas would make floats of whole numbers where one is missing
        return _take_index(pyarrow.parquet.read_table(file).to_pandas(integer_object_nulls=True))
    if suffix in (".json", ".jsonl"):
        # Not by `pandas.read_json`, which makes numbers and dates of texts that look like some
        text = Path(file).read_text("utf-8-sig").strip()
        if not text.startswith("["):  # an object a line
            text = "[" + ",\n".join(filter(str.strip, text.split("\n"))) + "]"
        return pd.DataFrame(json.loads(text), dtype=object)
    # The other kinds have the names of the columns in their first row
    is_excel = suffix == ".xlsx"
    frame = _read_excel(file, where) if is_excel else _read_csv(file, form, where, bad_rows)
    return frame if frame.empty else _name_columns(frame, names, where)  # a sheet may be empty


def _take_index(frame: Frame) -> Frame:
    """Return a frame with its rows counted from 0; what an index has a name for is a column, such
    as the times of a series.
    """
    names = [name for name in frame.index.names if name is not None]
    return frame.reset_index(names).reset_index(drop=True)


def _read_csv(source: Path | bytes, form: FileFormat, where: str, bad_rows: Policy) -> Frame:
    """Read the cells of a CSV file as texts, its row of names like any other."""
    import pandas as pd

    def read(sign: str, **options: Any) -> Frame:
        return pd.read_csv(
            io.BytesIO(source) if isinstance(source, bytes) else source,
            sep=sign,
            # Else pandas cuts rows with too many cells, and renames columns of the same name
            header=None,
            dtype=str,  # a column's type is decided later, by all of its cells
            encoding="utf-8-sig",  # Excel writes a byte-order mark
            keep_default_na=False,  # NA may be a word
            skip_blank_lines=False,  # or the numbers of the rows below would be wrong
            on_bad_lines="error" if bad_rows == "error" else "warn",
            **options,
        )

    # A first line such as sep=; is Excel's; else the delimiter is what cuts it into most cells.
    # No line has the character \0, so the whole first line is one cell
    first = read("\x00", nrows=1).iloc[0, 0]
    declared = re.fullmatch(r"sep=(.)", first.strip())
    sign = declared[1] if declared else form.delimiter
    sign = sign or max(_DELIMITERS, key=lambda sign: read(sign, nrows=1).shape[1])
    skipped = int(bool(declared))
    try:
        frame = read(sign, skiprows=skipped)
    except pd.errors.ParserError:
        # R names no first column; others end all rows but that of the names with a comma
        names, below = (read(sign, skiprows=skipped + row, nrows=1).iloc[0] for row in (0, 1))
        if len(below) != len(names) + 1 or len(names) == 1:
            raise
        position, end = ("first", "begin") if below.iloc[-1] else ("last", "end")
        raise UserError(
            f"{where}: row {skipped + 2} has {len(below)} cells, one more than there are names; "
            f"name each column, or {end} the row of names with {sign!r} if the {position} has none"
        ) from None
    frame.index += skipped  # that line counts as a row
    _check_quotes(frame, sign, where)
    return frame


def _check_quotes(frame: Frame, sign: str, where: str) -> None:
    """Refuse a cell that holds lines with as many cells as a row: a quote that was not closed."""
    ends = frame.shape[1] - 1  # delimiters in a row
    for _, cells in frame.items():
        for row, cell in cells[cells.str.count("\n") > 2].items():
            lines = cell.split("\n")[1:-1]  # the first and the last one are parts of rows
            alike = sum(line.count(sign) == ends for line in lines)
            if ends > 1 and alike > 0.9 * len(lines):
                raise UserError(
                    f"{where}: row {row + 1} has a quote that swallows the {len(lines)} rows after "
                    "it; remove it, or double it"
                )


def _read_excel(file: Path, where: str) -> Frame:
    """Read the cells of the first sheet of an Excel file, its row of names like any other."""
    import pandas as pd
    from openpyxl import load_workbook

    # Values of formulas rather than formulas. Not by pandas, which says nothing of merged cells
    sheet: Any = load_workbook(file, data_only=True).worksheets[0]
    merged = [str(cells) for cells in sheet.merged_cells.ranges]
    if merged:
        raise UserError(
            f"{where}: cells {merged[0]} are merged, and only the first of them has a value; "
            "unmerge them, and fill each"
        )
    frame = pd.DataFrame(sheet.values, dtype=object)
    # Programs that write Excel files leave the results of formulas to Excel: such cells look empty.
    # Reading the file again, as formulas, takes as long, so only where a cell is empty
    if frame.isna().any(axis=None):
        formulas: Any = pd.DataFrame(load_workbook(file).worksheets[0].values, dtype=object)
        is_formula = formulas.map(lambda cell: isinstance(cell, str) and cell.startswith("="))
        lacking = (is_formula & frame.isna()).stack()
        if lacking.any():
            row, column = lacking.idxmax()
            raise UserError(
                f"{where}: row {row + 1}, column {column + 1} holds a formula without its result; "
                "open the file in a spreadsheet program, and save it"
            )
    return frame


def _name_columns(frame: Frame, names: list[str] | None, where: str) -> Frame:
    """Give the columns the names that the first row has, or that the user gives.

    Columns without a name are left out: the first one numbers the rows, as some programs write it.
    """
    if names:
        if len(names) != frame.shape[1]:
            raise UserError(
                f"data.columns: it has {plural(len(names), 'name')}; give one for each of the "
                f"{plural(frame.shape[1], 'column')} of {where}"
            )
        return frame.set_axis(names, axis=1)

    # The first row has the names
    header = ["" if cell is None else str(cell).strip() for cell in frame.iloc[0]]
    frame = frame.iloc[1:]
    for index, name in enumerate(header):
        if index and not name and not frame.iloc[:, index].isin(["", None]).all():
            rank_zero_info(f"warning: {where}: column {index + 1} has no name and is left out")
    # The column of the rows' numbers has no name either, and needs no warning
    is_named = [bool(name) for name in header]
    return frame.set_axis(header, axis=1).loc[:, is_named]


def check_file(path: str | Path, setting: str) -> Path:
    """Return the path of a file that the user has named; ``~`` stands for the home directory.

    Raises:
        UserError: There is no such file, or it is a folder, a pipe or a device, from which reading
            might never end.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(
            f"{setting}: {path} is no file; name one"
            if path.exists()
            else f"{setting}: there is no file {path}; correct it"
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
            advice = nearest(column, frame.columns, f"; {remedy}")
            # All names are in one cell where the delimiter is none of the usual ones
            signs = re.findall(r"[^\w'\"]", frame.columns[0])
            if len(frame.columns) == 1 and column in re.findall(r"\w+", frame.columns[0]) and signs:
                sign = max(signs, key=signs.count)
                advice = f"; set --data.delimiter {shlex.quote(sign)} if that separates them"
            raise UserError(
                f"{where}: there is no column {column!r}, only "
                f"{some(list(map(repr, frame.columns)))}{advice}"
            )


def drop_bad_rows(
    frame: Frame,
    problems: Mapping[Hashable, str],
    policy: Policy,
    where: object,
    unit: str = "row",
    remedy: str = "",
) -> Frame:
    """Refuse the rows that can't be used, or leave them out and say so.

    Args:
        frame: The frame.
        problems: What is wrong with a row, by its index.
        policy: Whether they are an error or left out.
        where: What messages call the file.
        unit: What a row is called.
        remedy: What else the message advises.

    Returns:
        The others.

    Raises:
        UserError: There are some, and they may not be left out, or no others are left.
    """
    if not problems:
        return frame
    examples = [f"{unit} {row} ({problem})" for row, problem in list(problems.items())[:_NAMED]]
    more = f" and {len(problems) - _NAMED:,} more" if len(problems) > _NAMED else ""
    summary = (
        f"{where}: {len(problems):,} of {len(frame):,} {unit}s can't be used: "
        f"{', '.join(examples)}{more}"
    )
    some_are_good = len(problems) < len(frame)
    if policy == "error" or not some_are_good:
        advice = "correct or delete them" + ", or use --data.bad_rows drop" * some_are_good
        advice += f", or {remedy}" if remedy else ""
        raise UserError(f"{summary}; {advice}")
    rank_zero_info(f"{summary}; they are left out (data.bad_rows)")
    return frame.drop(index=list(problems))
