"""What the cells of a table mean, decided once, on the training file.

A `Column` reads the same column of any other file: in prediction, in a request that is served, in
an exported model's script. So the same value is the same value, however it is written: 205 and
205.0, 1,129 and 1129, True and TRUE, an é in either form of Unicode. What only looks the same, as
``pos`` and ``POS``, stays two values, and is said.
"""

import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from litlab.data.cells import (
    MOST_CATEGORIES,
    is_missing,
    parse_numbers,
    read_numbers,
    read_texts,
    warn_of_likeness,
    warn_of_points,
)
from litlab.data.files import Cells, FileFormat, Frame, Policy, drop_bad_rows
from litlab.data.times import NO_DATE, Zone, read_times
from litlab.errors import UserError
from litlab.util.text import add_to_list, some

Kind = Literal["number", "category", "time", "text"]
# What a column may be asked for where no setting says its kind: `fit_column` then decides by what
# most of the cells are. An "order" is what a split by time sorts by
Guess = Literal["input", "series", "target", "order"]


@dataclass(frozen=True)
class Column:
    """A column of a table, as the training file has it.

    Args:
        name: Its name.
        kind: What its values are.
        zone: Of times: "UTC" where they have UTC offsets; "wall" where the clock on the wall counts
            in spite of them; None where they have none.
        is_numeric: Of categories: whether all of them are numbers, so that NA is none of them.
    """

    name: str
    kind: Kind
    zone: Zone | None = None
    is_numeric: bool = False

    def read(self, cells: Cells, form: FileFormat, where: str) -> Cells:
        """Return the values of some cells.

        Args:
            cells: As of `read_cells`.
            form: How they are written.
            where: What messages call the file.

        Returns:
            Numbers as float64, times as datetime64, categories and texts as texts; NaN, NaT or NA
            where a cell is missing or can't be read.

        Raises:
            UserError: The cells are written in another way than `form` says.
        """
        if self.kind == "number":
            return read_numbers(cells, form, where)
        if self.kind == "time":
            return read_times(cells, form, where, self.zone)[0]
        # A text of words keeps its spelling: "True" and "1.0" in a review are what was written
        texts = read_texts(cells, form, is_category=self.kind == "category")
        return texts.mask(self.find_missing(cells, form))

    def find_missing(self, cells: Cells, form: FileFormat) -> Cells:
        """Return where cells are missing, bool: empty ones, words that the user names, and among
        numbers and times NA and its like.
        """
        return is_missing(cells, form, self.kind in ("number", "time") or self.is_numeric)


def fit_column(
    cells: Cells, kind: Kind | Guess, form: FileFormat, where: str, remedy: str = ""
) -> Column:
    """Decide what the cells of the training file are.

    Args:
        cells: As of `read_cells`.
        kind: What they are, where that is set. An "input", "series" or "target" holds numbers if
            most of its cells are some, and categories if not, or if there are few different
            numbers: one in an input, 20 in a target. An "order" holds numbers, or else times.
        form: How they are written.
        where: What messages call the file.
        remedy: The setting by which they would be no numbers.

    Raises:
        UserError: The cells are written in another way than `form` says.
    """
    name = str(cells.name)
    is_there = ~is_missing(cells, form, is_among_numbers=True)
    # What no setting says is guessed from the cells
    if kind in ("order", *MOST_CATEGORIES):
        numbers = read_numbers(cells, form, where, is_sure=False, remedy=remedy)
        wrong = numbers.isna() & is_there
        if kind == "order":
            # A single cell that is not a number makes it times: 2024-01-31 beside 20240201
            found: Kind = "time" if wrong.any() else "number"
        else:
            # The majority counts, so that one "unknown" among ages is a bad row with a line to
            # itself, not the end of the column as numbers. A categorical column says it is none
            is_number = numbers.notna().sum() > wrong.sum() and cells.dtype != "category"
            found = (
                "number" if is_number and numbers.nunique() > MOST_CATEGORIES[kind] else "category"
            )
        kind = found

    # What reading such a column again has to know besides its kind
    if kind == "time":
        return Column(name, kind, read_times(cells, form, where)[1])
    if kind == "category":
        # Among zip codes NA is missing, among countries it is Namibia
        is_numeric = bool(parse_numbers(cells, form)[is_there].notna().all())
        column = Column(name, kind, is_numeric=is_numeric)
        warn_of_likeness(column.read(cells, form, where), where)
        return column
    return Column(name, "text" if kind == "text" else "number")


def read_columns(
    raw: Frame,
    columns: Mapping[str, Column],
    form: FileFormat,
    where: str,
    *,
    needed: Collection[str] = (),
    bad_rows: Policy = "error",
    remedies: Mapping[str, str] = {},
) -> Frame:
    """Read the columns of a table. Rows in which a cell can't be read are errors or left out.

    Args:
        raw: As of `read_cells`; it has all of the columns.
        columns: The columns by their names.
        form: How the cells are written.
        where: What messages call the file.
        needed: Columns in which no cell may be missing.
        bad_rows: Whether rows that can't be used are errors or left out.
        remedies: The settings by which columns of numbers would be none, by the columns' names.

    Raises:
        UserError: There are bad rows, and they may not be left out.
    """
    import pandas as pd

    # All columns are read before anything is refused, so that one message has all bad rows
    values, problems, remedy = {}, {}, ""
    warn_of_points(raw[[name for name in columns if columns[name].kind == "number"]], form, where)
    for name, column in columns.items():
        cells = raw[name]
        values[name] = column.read(cells, form, where)
        lacks = column.find_missing(cells, form)
        # A cell that is there and can't be read is always wrong; one that is missing only where it
        # is needed
        is_bad = values[name].isna() & (~lacks | (name in needed))
        reason = ", not a number" if column.kind == "number" else ""
        for row, cell in cells[is_bad].items():
            text = "missing" if lacks[row] else f"{cell}{reason}"
            problems.setdefault(row, f"{name!r} is {text}")  # the first of a row is enough

        # One remedy for all: few different words without digits, as "unknown", stand for a missing
        # value; otherwise the column may be one of categories
        odd = [*cells[is_bad & ~lacks].map(str).unique()]
        if reason and odd and not remedy:
            if name not in needed and len(odd) < 4 and not re.search(r"\d", "".join(odd)):
                remedy = f"add {add_to_list('--data.missing', odd)} for values that are missing"
            elif name in remedies:
                remedy = f"add {remedies[name]} if such cells are right"
        # Nearly no time can be read: they are written in a form of their own
        if column.kind == "time" and is_bad.sum() > len(raw) / 2:
            verb = "correct" if form.time_format else "set"
            remedy = f"{verb} --data.time_format, such as '%Y%m' for 202401"
    rows = pd.DataFrame(values, index=raw.index)
    return drop_bad_rows(rows, problems, bad_rows, where, remedy=remedy)


def refuse_dates(rows: Frame, columns: Mapping[str, Column], where: str) -> None:
    """Refuse columns of dates among those of categories: nearly each would be one of its own.

    Raises:
        UserError: Names the settings that use a date or leave it out.
    """
    import pandas as pd

    dates = {}  # an example of each column
    for name, column in columns.items():
        # As many as the share below needs; a few dates may well be categories
        different = pd.Series(rows[name].dropna().unique()[:1000])
        if column.kind != "category" or len(different) <= MOST_CATEGORIES["target"]:
            continue
        # At least four digits or words of three letters, as in 2024-01-31 and 9-Sep-03: pandas
        # takes "May" and "3-4" for dates, too
        has_date = different.str.count(r"\d|[A-Za-z]{3}").ge(4) & ~different.str.match(NO_DATE)
        with warnings.catch_warnings(action="ignore"):  # that formats are mixed
            times = pd.to_datetime(different, errors="coerce", format="mixed")
        if (has_date & times.notna()).mean() > 0.9:
            dates[name] = different[0]
    if dates:
        shown = some([f"{name!r} (as {example!r})" for name, example in dates.items()])
        uses, leaves = (add_to_list(f"--data.{name}", [*dates]) for name in ("dates", "ignore"))
        raise UserError(
            f"{where}: columns of categories hold dates: {shown}; add {uses} to use them, or "
            f"{leaves} to leave them out"
        )
