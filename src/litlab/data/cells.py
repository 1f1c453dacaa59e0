"""What a cell means: nothing, a text, a category or a number. A value that is written in another
way stays the same value.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.files import Cells, FileFormat, Frame
from litlab.errors import UserError
from litlab.util.text import some

# Missing in columns of numbers and of times. Elsewhere they are words: NA is Namibia's code, and
# some people are called Null.
_MISSING_WORDS = (
    "", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A",
)  # fmt: skip
_SPACES = "\u00a0\u202f\u2009"  # no-break and thin ones, as people write 1 129
# What does not tell categories apart for a reader: zeros in front of a number, and all spaces but
# those between two numbers ("1 2" is not "12")
_NEEDLESS = re.compile(r"\s+(?!\d)|(?<![\d\s])\s+|\b0+(?=\d)")
# A column of numbers is one of categories if it has no more different ones than this. An input of
# one number can't be scaled, but whether it is missing may tell something; a target of 1 to 5 is a
# class; a series is always one of numbers
MOST_CATEGORIES = {"input": 1, "series": 0, "target": 20}
# Units in front of or behind a number, which is then no number for pandas: "$ 5", "5 kg"
_CURRENCY = "[$€£¥₹₩₽]|USD|EUR|GBP|CHF|JPY|CNY|INR"
_UNITS = (
    "%|[kmcµ]?[mgl]|km/h|mph|lbs?|oz|ft|in|mi|°[CF]|[smhd]|ms|min|[kMGT]?B|[km]?[WVA]|[kMG]?Hz|px"
)


def is_missing(cells: Cells, form: FileFormat, is_among_numbers: bool = False) -> Cells:
    # Columns of other types hold no words: numbers and times of Parquet, and the classes of image
    # folders, of which one may well be called NA
    if cells.dtype not in ("object", "string"):
        return cells.isna()
    words = {*form.missing, *(_MISSING_WORDS if is_among_numbers else ())}
    return cells.isna() | cells.isin(words)


# Texts and categories


def read_texts(cells: Cells, form: FileFormat, is_category: bool = True) -> Cells:
    """Return cells as texts in one form of Unicode.

    Args:
        cells: Of any type.
        form: How they are written.
        is_category: Whether what is written differently is to become one text: numbers without
            needless digits; True and False.
    """
    # A `map` of a categorical column works on the categories and returns another one
    if cells.dtype == "category":
        cells = cells.astype(cells.cat.categories.dtype)
    # pandas' own types with a mask; what `map` makes of them differs between its versions
    if cells.dtype in ("Int64", "Float64", "boolean"):
        cells = cells.astype(object).where(cells.notna(), None)
    missing = is_missing(cells, form)
    # Each different cell is written once. In a column of mixed types it is looked up by type and
    # value, as True and 1 are the same key of a dictionary
    is_mixed = cells.dtype == "object"
    keys = cells.map(lambda cell: (type(cell), cell)) if is_mixed else cells
    write = partial(_write_category, form=form) if is_category else _write_text
    names = {key: write(key[1] if is_mixed else key) for key in keys[~missing].unique()}
    texts: Cells = keys.where(~missing).map(names, na_action="ignore")
    # The same type whether or not a cell is there: a column without any would be one of floats
    return texts.astype("string")


def read_plain(cells: Cells, form: FileFormat) -> Cells:
    """Return numbers or times as they are written."""
    # With the default format, as words that stand for nothing are masked by the next line
    texts = read_texts(cells, FileFormat(), is_category=False)
    return texts.mask(is_missing(cells, form, is_among_numbers=True))


def _write_text(cell: Any) -> str:
    import numpy as np

    if isinstance(cell, float | np.floating):
        # A column of whole numbers is float64 where one is missing: 205.0 is 205
        return np.format_float_positional(cell, trim="-")
    # é may be one character, or e and an accent
    return unicodedata.normalize("NFC", str(cell))


def _write_category(cell: Any, form: FileFormat) -> str:
    text = _write_text(cell)
    if text.lower() in ("true", "false"):
        return text.capitalize()
    # Numbers lose needless digits: 1.50 is 1.5, +1 is 1. What begins with 0 is none but a code, as
    # the zip code 01067, and 1e5 may be one, too
    number = re.fullmatch(
        rf"([+-]?)(0|[1-9]\d*)(?:\{form.decimal}(\d+))?", _remove_groups(text, form)
    )
    if number is None or not isinstance(cell, str):  # a float is written like that already
        return text
    sign, whole, fraction = number.groups("")
    fraction = fraction.rstrip("0")
    return "-" * (sign == "-") + whole + f".{fraction}" * bool(fraction)


def warn_of_likeness(texts: Cells, where: str) -> None:
    """Warn of categories that look the same: in other case, with zeros in front, with spaces."""
    counts = texts.value_counts()
    # Group the texts by what is left without case, needless spaces and zeros
    plain = counts.index.str.normalize("NFKC").str.casefold().str.replace(_NEEDLESS, "", regex=True)
    alike = plain[plain.duplicated(keep=False)].unique()
    # Only the first such group is shown in full: a messy column may have hundreds
    if len(alike):
        group = counts[plain == alike[0]]
        shown = " and ".join(f"{text!r} ({count:,})" for text, count in group.items())
        more = f", and {len(alike) - 1} more like that" if len(alike) > 1 else ""
        rank_zero_info(
            f"warning: {where}: column {texts.name!r} has {shown}{more}: they count as different; "
            "write them alike if they are the same"
        )


def count_unknown(texts: Cells, values: Sequence[str], where: str) -> None:
    """Warn of cells whose category the model has not learned."""
    # `values` lacks categories that came once in training: they had nothing to be learned from
    unknown = texts[texts.notna() & ~texts.isin(values)]
    if len(unknown):
        rank_zero_info(
            f"warning: {where}: in {len(unknown):,} of {len(texts):,} rows column {texts.name!r} "
            f"has a category that training lacks or has once ({some(unknown.unique().tolist())}): "
            "it counts as missing"
        )


# Numbers


def count_far(numbers: Cells, ends: Sequence[float], where: str) -> None:
    """Say how many numbers are farther outside of those of the training than these lie apart.

    Args:
        numbers: A column.
        ends: Its smallest and its largest number in training.
        where: What messages call the file.
    """
    low, high = ends
    far = numbers[(numbers < 2 * low - high) | (numbers > 2 * high - low)]
    if len(far):
        column = f"column {numbers.name!r} is far from all that training had"
        rank_zero_info(
            f"warning: {where}: in {len(far):,} of {numbers.count():,} rows {column}, "
            f"{low:.7g} to {high:.7g} (as {far.iloc[0]:.7g}): "
            "what is predicted from it is a guess, and an interval may be too narrow"
        )


def read_numbers(
    cells: Cells, form: FileFormat, where: str, is_sure: bool = True, remedy: str = ""
) -> Cells:
    """Return cells as float64, NaN where one is missing or no finite number.

    Args:
        cells: Of any type; those that are not numbers are read as text.
        form: How they are written.
        where: What messages call the file.
        is_sure: Whether they have to be numbers.
        remedy: As of `fit_column`.

    Raises:
        UserError: They are numbers in another form.
    """
    numbers = parse_numbers(cells, form)
    if cells.dtype in ("object", "string"):
        _check_written(read_plain(cells, form), numbers, form, where, is_sure, remedy)
    return numbers


def parse_numbers(cells: Cells, form: FileFormat) -> Cells:
    """Return cells as float64, NaN where one is no finite number."""
    import numpy as np
    import pandas as pd

    # Numbers of Parquet or of a frame: nothing is to be parsed. True and False are words, though
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        numbers: Cells = cells.astype("float64")
        return numbers.where(np.isfinite(numbers))

    # All others as texts that `to_numeric` reads: no groups, and a point as the decimal sign
    missing = is_missing(cells, form, is_among_numbers=True)
    is_text = cells.dtype == "string"
    texts = cells if is_text else read_texts(cells, FileFormat(), is_category=False)
    plain = texts = texts.mask(missing)
    if form.thousands is not None:
        plain = texts.map(partial(_remove_groups, form=form), na_action="ignore")
    if form.decimal == ",":
        # A point is not the decimal sign here, so "1.5" must not become a number: "1?5" is none
        plain = plain.str.replace(".", "?").str.replace(",", ".")
    if not is_text:
        # A number of Excel or JSON is a number already, and its text has a point in any case
        plain = plain.where(cells.map(lambda cell: isinstance(cell, str)), texts)
    # `to_numeric` takes "inf", too, which would make every mean of the column infinite
    parsed: Cells = pd.to_numeric(plain, errors="coerce")
    parsed = parsed.astype("float64")
    return parsed.where(np.isfinite(parsed))


def _remove_groups(text: str, form: FileFormat) -> str:
    """Return a number without the signs between its groups of three digits, if it has such."""
    sign = form.thousands
    if sign is None:
        return text
    if sign == " ":  # typed as a space, but in the file it may be any of several
        text = re.sub(f"[{_SPACES}]", " ", text)
    # With ",": 1,129 and -12,345,678.9, but neither 1,12 nor 0,129, which stay as they are and are
    # no numbers then
    groups = rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}})+(?:\{form.decimal}\d+)?"
    return text.replace(sign, "") if re.fullmatch(groups, text) else text


def warn_of_points(cells: Frame, form: FileFormat, where: str) -> None:
    """Warn if three digits follow every point in the numbers of a file: if the points are between
    thousands, they are read as decimal signs without any error.
    """
    grouped = {}  # the first number with a point, by column
    for name, texts in cells.select_dtypes(["object", "string"]).items():
        pointed = [text for text in texts if isinstance(text, str) and "." in text]
        if not all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", text) for text in pointed):
            return  # one 1.5 proves that points are decimal signs in the whole file
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
    # What did not parse, and whether what did parse uses the decimal sign otherwise than 1.129
    wrong = texts[numbers.isna() & texts.notna()]
    right = texts[numbers.notna()]
    pointed = right[right.str.contains(form.decimal, regex=False)]
    is_grouped = pointed.str.fullmatch(rf"[+-]?[1-9]\d{{0,2}}\{form.decimal}\d{{3}}").all()
    column = f"{where}: column {texts.name!r}"
    if not len(wrong):
        return

    # Groups of three digits. A setting is advised only if it reads all cells that are wrong now
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
        # 1,129 alone may be either; a second group or a decimal sign elsewhere would tell
        if sign == other and not len(pointed) and wrong.str.count(re.escape(sign)).eq(1).all():
            raise UserError(
                f"{column} has numbers such as {example!r}; set {setting} if that is {whole}, "
                f"--data.decimal {sign} if it is {example.replace(sign, '.')}"
            )
        raise UserError(f"{column} has thousands in groups, as {example!r}; set {setting}")

    # The other decimal sign, as 1,5 is
    if wrong.str.fullmatch(rf"[+-]?\d*\{other}\d+").all() and not len(pointed):
        raise UserError(
            f"{column} has another decimal sign, as {example!r}; set --data.decimal {other} or "
            "write all columns with the same one"
        )

    # Units, in more than half of the cells: one "5 kg" among numbers is a bad row. A column that
    # need not be numbers may have a few such texts as categories ("5 kg", "10 kg")
    number = r"[+-]?\d[\d.,' ]*"
    unit = rf"(?:{_CURRENCY})\s*{number}|{number}\s*(?:{_CURRENCY}|{_UNITS})"
    has_unit = wrong.str.fullmatch(unit)
    if has_unit.sum() > len(texts.dropna()) / 2 and (
        is_sure or wrong.nunique() > MOST_CATEGORIES["target"]
    ):
        raise UserError(
            f"{column} has numbers with a unit, as {example!r}; write the numbers alone"
            + (f", or add {remedy} if they are none" if remedy else "")
        )
