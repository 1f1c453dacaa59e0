"""Classes: their order, and those that are probably not meant as they are written."""

import unicodedata
from collections.abc import Mapping
from math import inf, isnan

_EMPTY = ("nan", "none", "null", "na", "n/a", "#n/a", "nil", "-", "--", "?")
_NAMED = 5


def label_notes(counts: Mapping[str, int]) -> list[str]:
    """Find labels that look like one class written in several ways, or like a missing label.

    Args:
        counts: How often each label occurs, as it is written. Spaces at its ends don't make another class.

    Returns:
        A line for each kind that occurs.
    """
    groups: dict[str, list[str]] = {}
    for label in counts:
        groups.setdefault(_plain(label), []).append(label)
    notes = []
    alike = [sorted(group, key=lambda label: -counts[label]) for group in groups.values() if len(group) > 1]
    apart = [_listed(group, counts) for group in alike if len({label.strip() for label in group}) > 1]
    if apart:
        notes.append(
            f"warning: labels that differ only in how they are written count as different classes: {_some(apart)}; "
            f"write them alike if they mean the same"
        )
    spaced = [_listed(group, counts) for group in alike if len({label.strip() for label in group}) == 1]
    if spaced:
        notes.append(f"labels that differ only in spaces count as one class: {_some(spaced)}")
    empty = [f"{shortened(label)} ({count:,})" for label, count in counts.items() if label.strip().lower() in _EMPTY]
    if empty:
        notes.append(
            f"warning: these labels look like missing values, but count as classes: {_some(empty)}; "
            f"delete such rows if it is missing"
        )
    return notes


def in_order(labels: set[str]) -> list[str]:
    """Sort labels; as numbers if all are, so that class 10 comes after class 9."""
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    return sorted(labels, key=lambda label: (inf if isnan(numbers[label]) else numbers[label], label))


def shortened(value: str) -> str:
    """Return a value of a user's file as messages show it: quoted, on one line, and not too long."""
    return repr(value if len(value) <= 40 else value[:37] + "...")


def _plain(label: str) -> str:
    """Return a key that is the same for labels which people read as one."""
    text = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    text = " ".join(text.casefold().split())
    try:
        return repr(float(text))
    except ValueError:
        return text


def _listed(group: list[str], counts: Mapping[str, int]) -> str:
    *others, last = [f"{shortened(label)} ({counts[label]:,})" for label in group]
    return f"{', '.join(others)} and {last}"


def _some(items: list[str]) -> str:
    return "; ".join(items[:_NAMED]) + (f"; and {len(items) - _NAMED:,} more" if len(items) > _NAMED else "")
