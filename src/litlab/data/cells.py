"""What stands in a cell: nothing, or a text; the same text or category, however it is written."""

import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.files import Cells, FileFormat
from litlab.util.text import some

_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A")
SPACES = "\u00a0\u202f\u2009"  # between groups of digits
_NEEDLESS = r"\s+(?!\d)|(?<![\d\s])\s+|\b0+(?=\d)"  # spaces but between numbers, zeros in front


def is_missing(cells: Cells, form: FileFormat, is_among_numbers: bool = False) -> Cells:
    words = {*form.missing, *(_WORDS if is_among_numbers else ())}
    return cells.isna() | (cells.isin(words) if cells.dtype in ("object", "string") else False)


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
    missing = is_missing(cells, form)
    # By value and type, as True is 1 for a dictionary
    keys = cells if cells.dtype != "object" else cells.map(lambda cell: (type(cell), cell))
    write = partial(_write_category, form=form) if is_category else _write_text
    names = {
        key: write(key[1] if isinstance(key, tuple) else key) for key in keys[~missing].unique()
    }
    texts: Cells = keys.where(~missing).map(names, na_action="ignore")
    kind: Any = pd.StringDtype()
    return texts.astype(kind)


def read_plain(cells: Cells, form: FileFormat) -> Cells:
    """Return numbers or times as they are written."""
    texts = read_texts(cells, FileFormat(), is_category=False)
    return texts.mask(is_missing(cells, form, is_among_numbers=True))


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
        rf"([+-]?)(0|[1-9]\d*)(?:\{form.decimal}(\d+))?", remove_groups(text, form)
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


def count_unknown(texts: Cells, values: Sequence[str], where: str) -> None:
    """Say how many cells hold a category that a model does not tell from others."""
    unknown = texts[texts.notna() & ~texts.isin(values)]
    if len(unknown):
        rank_zero_info(
            f"warning: {where}: in {len(unknown):,} of {len(texts):,} rows column {texts.name!r} "
            f"has a category that training lacks or has once ({some(unknown.unique().tolist())}): "
            "it counts as missing"
        )


def remove_groups(text: str, form: FileFormat) -> str:
    """Return a number without what stands between groups of three digits, if that is so."""
    sign = form.thousands
    if sign is None:
        return text
    if sign == " ":
        text = re.sub(f"[{SPACES}]", " ", text)
    groups = rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}})+(?:\{form.decimal}\d+)?"
    return text.replace(sign, "") if re.fullmatch(groups, text) else text
