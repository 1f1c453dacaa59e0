"""The end of a message about a name that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message: the nearest of some names, or something else if none is near."""
    known = sorted(set(names))
    lower = {other.lower(): other for other in known}  # the wrong case is the smallest mistake
    found = [lower[name.lower()]] if name.lower() in lower else get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else otherwise
