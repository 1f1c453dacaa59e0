"""Numbers as people write them, of which a program can't know what they mean: 1,234.00 or 3,5 or 12 kW or $5."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from litlab.data.labels import shortened

_MISSING = ("", "nan", "na", "n/a", "null", "none")
_NUMBER = re.compile(r"(?P<before>[^\w+\-.,\"']{0,3}) ?(?P<number>[+-]?[\d.,' ]*\d) ?(?P<after>[^\d.,]{0,10})")
_SPACES = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2019": "'", "\u2212": "-"})
_GROUPED = re.compile(r"\d{1,3}([ ']\d{3})+(?![\d '])")


def read_numbers(texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Return cells as float64, NaN where one is empty or no number, and the places of those that are text."""
    try:
        numbers = np.array(texts, dtype=np.float64)
        if not np.isinf(numbers).any():
            return numbers, []
    except ValueError:
        pass  # one by one, to find out which
    numbers, wrong = np.full(len(texts), np.nan), []
    for place, text in enumerate(texts):
        if text.strip().lower() in _MISSING:
            continue
        try:
            numbers[place] = float(text)
        except ValueError:
            wrong.append(place)
        if np.isinf(numbers[place]):
            numbers[place] = np.nan
            wrong.append(place)
    return numbers, wrong


def no_number(column: str, text: str) -> str:
    """Say why a cell of a column is not a number, and what to write instead."""
    try:
        float(text)
        return f"column {shortened(column)} is {shortened(text)}, not a finite number"
    except ValueError:
        found = _plain(text)
        remedy = f"plain number: write {found[0]}" if found else "number"
        return f"column {shortened(column)} is {shortened(text)}, not a {remedy}"


def are_formatted(texts: Sequence[str]) -> bool:
    """Whether most of some texts are numbers in another notation, all with the same unit or sign, if any."""
    affixes = Counter(found[1] for found in map(_plain, texts) if found)
    return bool(affixes) and affixes.most_common(1)[0][1] > len(texts) / 2


def _plain(text: str) -> tuple[str, str] | None:
    """Return the number that a text may mean, and what is written around it; None for words, dates and so on."""
    found = _NUMBER.fullmatch(text.strip().translate(_SPACES))
    if not found:
        return None
    number, sign = found["number"].lstrip("+-"), "-" * found["number"].startswith("-")
    number = _GROUPED.sub(lambda group: re.sub("[ ']", "", group[0]), number)
    if re.fullmatch(r"\d{1,3},\d{3}", number):  # thousands here, thousandths there
        meant = f"{sign}{number.replace(',', '')} or {sign}{number.replace(',', '.')}"
    elif re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", number):
        meant = sign + number.replace(",", "")
    elif re.fullmatch(r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}", number):
        meant = sign + number.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"\d*[.,]?\d+", number):
        meant = sign + number.replace(",", ".")
    else:
        return None
    return meant, found["before"] + found["after"].strip()
