"""What the cells of a table mean, decided once, on the training file.

A `Column` reads the same column of any other file: in prediction, in a request that is served, in
an exported model's script. So the same value is the same value, however it is written: 205 and
205.0, 1,129 and 1129, True and TRUE, an é in either form of Unicode. What only looks the same, as
``pos`` and ``POS``, stays two values, and is said.
"""

import re
import unicodedata
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.files import Cells, FileFormat, Frame, Policy, drop_bad_rows
from litlab.errors import UserError
from litlab.util.text import add_to_list, some

Kind = Literal["number", "category", "time", "text"]
# What a setting can ask for, besides: what most of the cells are
Guess = Literal["input", "series", "target", "order"]
Zone = Literal["UTC", "wall"]

_MOST = {"input": 1, "series": 0, "target": 20}  # different numbers that stand for categories
_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A")
_SPACES = "\u00a0\u202f\u2009"  # between groups of digits
# Behind a time of day, perhaps with AM or PM: the first group
_OFFSET = r"(:\d\d(?:\.\d+)?(?:\s*[AaPp]\.?[Mm]\.?)?)\s*(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)$"
# A time of day; a number that is no month of a year, as 2010.05 is
_NO_DATE = r"\d\d?:|\d{4}\.(?!(?:0[1-9]|1[0-2])$)\d+$"
_NEEDLESS = r"\s+(?!\d)|(?<![\d\s])\s+|\b0+(?=\d)"  # spaces but between numbers, zeros in front
_CURRENCY = "[$€£¥₹₩₽]|USD|EUR|GBP|CHF|JPY|CNY|INR"
_UNITS = (
    "%|[kmcµ]?[mgl]|km/h|mph|lbs?|oz|ft|in|mi|°[CF]|[smhd]|ms|min|[kMGT]?B|[km]?[WVA]|[kMG]?Hz|px"
)


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
        texts = read_texts(cells, form, is_category=self.kind == "category")
        return texts.mask(self.find_missing(cells, form))

    def find_missing(self, cells: Cells, form: FileFormat) -> Cells:
        """Return where cells are missing, bool: empty ones, words that the user names, and among
        numbers and times NA and its like.
        """
        return _is_missing(cells, form, self.kind in ("number", "time") or self.is_numeric)


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
    is_there = ~_is_missing(cells, form, is_among_numbers=True)
    if kind in ("order", *_MOST):
        numbers = read_numbers(cells, form, where, is_sure=False, remedy=remedy)
        wrong = numbers.isna() & is_there
        if kind == "order":
            found: Kind = "time" if wrong.any() else "number"
        else:
            is_number = numbers.notna().sum() > wrong.sum() and cells.dtype != "category"
            found = "number" if is_number and numbers.nunique() > _MOST[kind] else "category"
        kind = found
    if kind == "time":
        return Column(name, kind, read_times(cells, form, where)[1])
    if kind == "category":
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

    values, problems, remedy = {}, {}, ""
    _warn_of_points(raw[[name for name in columns if columns[name].kind == "number"]], form, where)
    for name, column in columns.items():
        cells = raw[name]
        values[name] = column.read(cells, form, where)
        lacks = column.find_missing(cells, form)
        is_bad = values[name].isna() & (~lacks | (name in needed))
        reason = ", not a number" if column.kind == "number" else ""
        for row, cell in cells[is_bad].items():
            text = "missing" if lacks[row] else f"{cell}{reason}"
            problems.setdefault(row, f"{name!r} is {text}")
        odd = [*cells[is_bad & ~lacks].map(str).unique()]
        if reason and odd and not remedy:
            if name not in needed and len(odd) < 4 and not re.search(r"\d", "".join(odd)):
                remedy = f"add {add_to_list('--data.missing', odd)} for values that are missing"
            elif name in remedies:
                remedy = f"add {remedies[name]} if such cells are right"
    rows = pd.DataFrame(values, index=raw.index)
    return drop_bad_rows(rows, problems, bad_rows, where, remedy=remedy)


def _is_missing(cells: Cells, form: FileFormat, is_among_numbers: bool = False) -> Cells:
    words = {*form.missing, *(_WORDS if is_among_numbers else ())}
    return cells.isna() | (cells.isin(words) if cells.dtype in ("object", "string") else False)


# Texts and categories


def read_texts(cells: Cells, form: FileFormat, is_category: bool = True) -> Cells:
    """Return cells as texts in one form of Unicode.

    Args:
        cells: Of any type.
        form: How they are written.
        is_category: Whether what is written differently is to become one text: numbers without
            needless digits; True and False.
    """
    import pandas as pd

    if cells.dtype == "category":
        cells = cells.astype(cells.cat.categories.dtype)
    if cells.dtype in ("Int64", "Float64", "boolean"):  # whose `map` makes floats of them
        cells = cells.astype(object).where(cells.notna(), None)
    missing = _is_missing(cells, form)
    # By value and type, as True is 1 for a dictionary
    keys = cells if cells.dtype != "object" else cells.map(lambda cell: (type(cell), cell))
    write = partial(_write_category, form=form) if is_category else _write_text
    names = {
        key: write(key[1] if isinstance(key, tuple) else key) for key in keys[~missing].unique()
    }
    texts: Cells = keys.where(~missing).map(names, na_action="ignore")
    kind: Any = pd.StringDtype()
    return texts.astype(kind)


def _read_plain(cells: Cells, form: FileFormat) -> Cells:
    """Return numbers or times as they are written."""
    texts = read_texts(cells, FileFormat(), is_category=False)
    return texts.mask(_is_missing(cells, form, is_among_numbers=True))


def _write_text(cell: Any) -> str:
    import numpy as np

    if isinstance(cell, float | np.floating):
        return np.format_float_positional(cell, trim="-")  # 205.0 is 205
    return unicodedata.normalize("NFC", str(cell))


def _write_category(cell: Any, form: FileFormat) -> str:
    text = _write_text(cell)
    if text.lower() in ("true", "false"):
        return text.capitalize()
    # Of a number no needless digits; 01 is none, and 1e5 may be a code
    number = re.fullmatch(
        rf"([+-]?)(0|[1-9]\d*)(?:\{form.decimal}(\d+))?", _remove_groups(text, form)
    )
    if number is None or not isinstance(cell, str):
        return text
    sign, whole, fraction = number.groups("")
    fraction = fraction.rstrip("0")
    return "-" * (sign == "-") + whole + f".{fraction}" * bool(fraction)


def warn_of_likeness(texts: Cells, where: str) -> None:
    """Warn of categories that look the same: in other case, with zeros in front, with spaces."""
    counts = texts.value_counts()
    alike: dict[str, list[str]] = {}
    for text in counts.index:
        plain = unicodedata.normalize("NFKC", text).casefold()
        alike.setdefault(re.sub(_NEEDLESS, "", plain), []).append(text)
    pairs = [group for group in alike.values() if len(group) > 1]
    if pairs:
        shown = " and ".join(f"{text!r} ({counts[text]:,})" for text in pairs[0])
        more = f", and {len(pairs) - 1} more like that" if len(pairs) > 1 else ""
        rank_zero_info(
            f"warning: {where}: column {texts.name!r} has {shown}{more}: they count as different; "
            "write them alike if they are the same"
        )


def refuse_dates(rows: Frame, columns: Mapping[str, Column], where: str) -> None:
    """Refuse columns of dates among those of categories: nearly each would be one of its own.

    Raises:
        UserError: Names the settings that use a date or leave it out.
    """
    import pandas as pd

    dates = {}
    for name, column in columns.items():
        different = pd.Series(rows[name].dropna().unique()[:1000])
        if column.kind != "category" or len(different) <= _MOST["target"]:
            continue
        # As 2024-01-31 and 9-Sep-03
        has_date = different.str.count(r"\d|[A-Za-z]{3}").ge(4) & ~different.str.match(_NO_DATE)
        with warnings.catch_warnings(action="ignore"):
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


def count_unknown(texts: Cells, values: Sequence[str], where: str) -> None:
    """Say how many cells hold a category that a model does not tell from others."""
    unknown = texts[texts.notna() & ~texts.isin(values)]
    if len(unknown):
        rank_zero_info(
            f"warning: {where}: in {len(unknown):,} of {len(texts):,} rows column {texts.name!r} "
            f"has a category that training lacks or has once ({some(unknown.unique().tolist())}): "
            "it counts as missing"
        )


# Numbers


def read_numbers(
    cells: Cells, form: FileFormat, where: str, is_sure: bool = True, remedy: str = ""
) -> Cells:
    """Return cells as float64, NaN where one is missing or no finite number.

    Args:
        cells: Of any type; what is no number already is read as text.
        form: How they are written.
        where: What messages call the file.
        is_sure: Whether they have to be numbers.
        remedy: As of `fit_column`.

    Raises:
        UserError: They are numbers in another form.
    """
    numbers = parse_numbers(cells, form)
    if cells.dtype in ("object", "string"):
        _check_written(_read_plain(cells, form), numbers, form, where, is_sure, remedy)
    return numbers


def parse_numbers(cells: Cells, form: FileFormat) -> Cells:
    """Return cells as float64, NaN where one is no finite number."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        numbers: Cells = cells.astype("float64")
        return numbers.where(np.isfinite(numbers))

    missing = _is_missing(cells, form, is_among_numbers=True)
    is_text = cells.dtype == "string"
    texts = cells if is_text else read_texts(cells, FileFormat(), is_category=False)
    plain = texts = texts.mask(missing)
    if form.thousands is not None:
        plain = texts.map(partial(_remove_groups, form=form), na_action="ignore")
    if form.decimal == ",":
        plain = plain.str.replace(".", "?").str.replace(",", ".")
    if not is_text:  # a number of Excel or JSON is written in no way
        plain = plain.where(cells.map(lambda cell: isinstance(cell, str)), texts)
    parsed: Cells = pd.to_numeric(plain, errors="coerce")
    parsed = parsed.astype("float64")
    return parsed.where(np.isfinite(parsed))


def _remove_groups(text: str, form: FileFormat) -> str:
    """Return a number without what stands between groups of three digits, if that is so."""
    sign = form.thousands
    if sign is None:
        return text
    if sign == " ":
        text = re.sub(f"[{_SPACES}]", " ", text)
    groups = rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}})+(?:\{form.decimal}\d+)?"
    return text.replace(sign, "") if re.fullmatch(groups, text) else text


def _warn_of_points(cells: Frame, form: FileFormat, where: str) -> None:
    """Warn where each point in the numbers of a file has three digits behind it: between thousands
    it would be read, too, and nothing would tell.
    """
    grouped = {}
    for name, texts in cells.select_dtypes(["object", "string"]).items():
        pointed = [text for text in texts if isinstance(text, str) and "." in text]
        if not all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", text) for text in pointed):
            return
        grouped |= {repr(name): pointed[0]} if pointed else {}
    if grouped and form.decimal == "." and form.thousands is None:
        rank_zero_info(
            f"warning: {where}: three digits stand behind every point of {some([*grouped])}, as "
            f"in {next(iter(grouped.values()))}; if points are between thousands, set "
            "--data.thousands . --data.decimal ,"
        )


def _check_written(
    texts: Cells, numbers: Cells, form: FileFormat, where: str, is_sure: bool, remedy: str
) -> None:
    """Refuse a column of numbers that are written in another form; say which setting reads it."""
    wrong = texts[numbers.isna() & texts.notna()]
    right = texts[numbers.notna()]
    pointed = right[right.str.contains(form.decimal, regex=False)]
    is_grouped = pointed.str.fullmatch(rf"[+-]?[1-9]\d{{0,2}}\{form.decimal}\d{{3}}").all()
    column = f"{where}: column {texts.name!r}"
    if not len(wrong):
        return

    example, other = wrong.iloc[0], "," if form.decimal == "." else "."
    for sign in (other, form.decimal, "'", " ", *_SPACES):
        # In 1.129.000 the decimal sign can't be one, if it never is elsewhere
        swaps = sign == form.decimal
        decimal = other if swaps else form.decimal
        groups = rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}})+(?:\{decimal}\d+)?"
        if not wrong.str.fullmatch(groups).all() or (swaps and not is_grouped):
            continue
        name = {"'": '"\'"', ",": ",", ".": "."}.get(sign, "' '")  # as a shell takes it
        setting = f"--data.thousands {name}" + f" --data.decimal {other}" * swaps
        whole = example.replace(sign, "")
        if sign == other and not len(pointed) and wrong.str.count(re.escape(sign)).eq(1).all():
            raise UserError(
                f"{column} has numbers such as {example!r}; set {setting} if that is {whole}, "
                f"--data.decimal {sign} if it is {example.replace(sign, '.')}"
            )
        raise UserError(f"{column} has thousands in groups, as {example!r}; set {setting}")
    if wrong.str.fullmatch(rf"[+-]?\d*\{other}\d+").all() and not len(pointed):
        raise UserError(
            f"{column} has another decimal sign, as {example!r}; set --data.decimal {other} or "
            "write all columns with the same one"
        )

    # Half of the cells at least: one "5 kg" among numbers is a bad row
    number = r"[+-]?\d[\d.,' ]*"
    unit = rf"(?:{_CURRENCY})\s*{number}|{number}\s*(?:{_CURRENCY}|{_UNITS})"
    has_unit = wrong.str.fullmatch(unit)
    if has_unit.sum() > len(texts.dropna()) / 2 and (is_sure or wrong.nunique() > _MOST["target"]):
        raise UserError(
            f"{column} has numbers with a unit, as {example!r}; write the numbers alone"
            + (f", or add {remedy} if they are none" if remedy else "")
        )


# Times


def read_times(
    cells: Cells, form: FileFormat, where: str, zone: Zone | Literal["any"] | None = "any"
) -> tuple[Cells, Zone | None]:
    """Read cells as times: any form of ISO 8601, dates whose parts can't be confused, seconds or
    milliseconds since 1970, the days of a spreadsheet, or years with months as fractions.

    Args:
        cells: Texts, numbers or times.
        form: Its `time_format` says how they are written.
        where: What messages call the file.
        zone: As of `Column`, of the training file; "any": they are those of the training file.

    Returns:
        datetime64, NaT where there is no time; and their zone. Times with UTC offsets are in UTC,
        but where the clock on the wall shows the same in all rows, as at midnight: then as it says,
        since days are at equal steps there alone.

    Raises:
        UserError: Day and month could be either way round, or there are UTC offsets here and none
            in training, or the other way round.
    """
    import pandas as pd

    texts = _read_plain(cells, form)
    numbers = _read_clock_numbers(texts)
    if numbers is not None:
        return numbers, None
    clock = texts.str.replace(_OFFSET, r"\1", regex=True)
    has_offset = clock.ne(texts).fillna(False).astype(bool)
    if zone != "any" and has_offset.any() != (zone is not None) and zone != "wall":
        these, those = ("no UTC offsets", "some") if zone else ("UTC offsets", "none")
        raise UserError(
            f"{where}: the times in column {cells.name!r} have {these}, and those of the training "
            f"have {those}; write them alike"
        )
    time_format = form.time_format and re.sub(r"\s*%[zZ]$", "", form.time_format)
    local = _parse_times(clock, time_format, where)
    if not has_offset.any():
        return local, None
    if zone == "wall" or (zone == "any" and local.dt.time.nunique() == 1):
        return local.where(has_offset), "wall"
    offset = texts.where(has_offset).str.extract(_OFFSET)[1]
    offset = offset.str.replace("Z|UTC|GMT", "+00:00", regex=True)
    written = local.dt.strftime("%Y-%m-%dT%H:%M:%S.%f") + offset
    return pd.to_datetime(written, format="ISO8601", errors="coerce", utc=True), "UTC"


def _read_clock_numbers(texts: Cells) -> Cells | None:
    """Return times that are written as numbers; None where they are none."""
    import pandas as pd

    there = texts.dropna()
    for pattern, unit, origin in (
        (r"\d{9,10}(\.\d+)?", "s", "unix"),
        (r"\d{12,13}", "ms", "unix"),
        (r"[2-7]\d{4}(\.\d+)?", "D", "1899-12-30"),  # of a spreadsheet, 1954 to 2119
    ):
        if len(there) and there.str.fullmatch(pattern).all():
            numbers: Any = pd.to_numeric(texts)
            return pd.to_datetime(numbers, unit=unit, origin=origin).dt.round("ms")
    # Years with months as fractions: 1949.5 is July, 1949.083 February
    if there.str.fullmatch(r"[12]\d{3}(\.\d+)?").all() and "." in "".join(there):
        years: Any = pd.to_numeric(there)
        months = 12 * (years - 1970)
        if months.sub(months.round()).abs().max() < 0.045:  # as of 1949.08
            times = months.round().to_numpy("int64").astype("datetime64[M]").astype("datetime64[s]")
            return pd.Series(times, there.index).reindex(texts.index)
    return None


def _parse_times(texts: Cells, time_format: str | None, where: str) -> Cells:
    import pandas as pd

    if time_format:
        return pd.to_datetime(texts, format=time_format, errors="coerce")
    texts = texts.mask(texts.str.match(_NO_DATE))
    times = pd.to_datetime(texts, format="ISO8601", errors="coerce")
    others = texts[times.isna()]
    parse: Any = partial(pd.to_datetime, others, format="mixed", errors="coerce")
    with warnings.catch_warnings(action="ignore"):  # that each is parsed by itself
        day_first, month_first = parse(dayfirst=True), parse(dayfirst=False)
    is_unclear = day_first.notna() & (day_first != month_first)
    unclear = others[is_unclear & ~others.str.match(r"\d{4}\D")]
    if len(unclear):
        raise UserError(
            f"{where}: {unclear.iloc[0]!r} in column {texts.name!r} could be day or month first; "
            "set --data.time_format, such as '%d/%m/%Y' or '%m/%d/%Y %H:%M'"
        )
    return times.fillna(month_first)
