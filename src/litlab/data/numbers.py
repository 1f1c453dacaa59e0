"""Cells as numbers; the setting that reads those that are written in another form."""

import re
from functools import partial

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.cells import SPACES, is_missing, read_plain, read_texts, remove_groups
from litlab.data.files import Cells, FileFormat, Frame
from litlab.errors import UserError
from litlab.util.text import some

MOST_CATEGORIES = {
    "input": 1,
    "series": 0,
    "target": 20,
}  # different numbers that stand for categories
_CURRENCY = "[$€£¥₹₩₽]|USD|EUR|GBP|CHF|JPY|CNY|INR"
_UNITS = (
    "%|[kmcµ]?[mgl]|km/h|mph|lbs?|oz|ft|in|mi|°[CF]|[smhd]|ms|min|[kMGT]?B|[km]?[WVA]|[kMG]?Hz|px"
)


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
        _check_written(read_plain(cells, form), numbers, form, where, is_sure, remedy)
    return numbers


def parse_numbers(cells: Cells, form: FileFormat) -> Cells:
    """Return cells as float64, NaN where one is no finite number."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        numbers: Cells = cells.astype("float64")
        return numbers.where(np.isfinite(numbers))

    missing = is_missing(cells, form, is_among_numbers=True)
    is_text = cells.dtype == "string"
    texts = cells if is_text else read_texts(cells, FileFormat(), is_category=False)
    plain = texts = texts.mask(missing)
    if form.thousands is not None:
        plain = texts.map(partial(remove_groups, form=form), na_action="ignore")
    if form.decimal == ",":
        plain = plain.str.replace(".", "?").str.replace(",", ".")
    if not is_text:  # a number of Excel or JSON is written in no way
        plain = plain.where(cells.map(lambda cell: isinstance(cell, str)), texts)
    parsed: Cells = pd.to_numeric(plain, errors="coerce")
    parsed = parsed.astype("float64")
    return parsed.where(np.isfinite(parsed))


def warn_of_points(cells: Frame, form: FileFormat, where: str) -> None:
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
    for sign in (other, form.decimal, "'", " ", *SPACES):
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
    if has_unit.sum() > len(texts.dropna()) / 2 and (
        is_sure or wrong.nunique() > MOST_CATEGORIES["target"]
    ):
        raise UserError(
            f"{column} has numbers with a unit, as {example!r}; write the numbers alone"
            + (f", or add {remedy} if they are none" if remedy else "")
        )
