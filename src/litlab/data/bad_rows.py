"""Rows of a user's file that can't be used: all of them are found in one pass, then named in one error, or left out."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError

Policy = Literal["error", "drop"]
_NAMED = 3  # rows that a message names; of the others it gives the number


@dataclass
class BadRows:
    """What is wrong with the rows of one file, or with the images of one data set.

    Args:
        path: The file or folder, for messages.
        policy: Whether bad rows are an error or left out.
        unit: "row", each known by the line on which it begins, or "image", each known by its file name.
    """

    path: object
    policy: Policy = "error"
    unit: Literal["row", "image"] = "row"
    problems: dict[Hashable, str] = field(default_factory=dict)

    def add(self, row: Hashable, problem: str) -> None:
        """Note what is wrong with a row (its line) or image (its name); of several problems, the first counts."""
        self.problems.setdefault(row, problem)

    def __contains__(self, row: Hashable) -> bool:
        """Whether a row is bad."""
        return row in self.problems

    def __len__(self) -> int:
        """Return the number of bad rows."""
        return len(self.problems)

    def listed(self) -> str:
        """Return the first bad rows with what is wrong with them, and the number of the others."""
        rows = sorted(self.problems.items()) if self.unit == "row" else self.problems.items()
        some = [f"{self._name(row)} ({what})" for row, what in list(rows)[:_NAMED]]
        others = [f"and {len(self) - _NAMED:,} more"] if len(self) > _NAMED else []
        return ", ".join([*some, *others])

    def message(self, kept: int) -> str:
        """Return what an error says of them; `kept` is the number of good rows."""
        if len(self) == 1 and kept:
            ((row, problem),) = self.problems.items()
            return f"{self.path}, line {row}: {problem}" if self.unit == "row" else f"{self._name(row)}: {problem}"
        return f"{self.path}: {len(self):,} of {kept + len(self):,} {self.unit}s can't be used: {self.listed()}"

    def _name(self, row: Hashable) -> str:
        name = f"line {row}" if self.unit == "row" else str(row)
        return name if name.isprintable() else ascii(name)


def settle(*files: tuple[BadRows, int]) -> list[str]:
    """Refuse the bad rows of some files that belong together, or tell which ones are left out.

    Args:
        files: The bad rows of each file, and how many good ones it has.

    Returns:
        A line for each file that tells which rows are left out; empty where none are.

    Raises:
        UserError: There are bad rows, and they may not be left out, or no others are left.
    """
    found = [(bad, kept) for bad, kept in files if bad]
    allowed = all(bad.policy == "drop" for bad, _ in found)
    fatal = [bad.message(kept) for bad, kept in found if not (allowed and kept)]
    if fatal:
        one = sum(len(bad) for bad, _ in found) == 1
        if found[0][0].unit == "image":
            remedy = f"replace or delete {'it' if one else 'them'}"
        else:
            remedy = f"correct or delete {'the row' if one else 'them'}"
        drop = "" if allowed or not all(kept for _, kept in found) else ", or use --data.bad_rows drop"
        raise UserError("; ".join(fatal) + f"; {remedy}{drop}")
    return [
        f"{bad.path}: {len(bad):,} of {kept + len(bad):,} {bad.unit}s dropped (data.bad_rows): {bad.listed()}"
        if bad
        else ""
        for bad, kept in files
    ]


def settle_and_tell(bad: BadRows, kept: int) -> None:
    """Refuse the bad rows of one file, or tell the user which ones are left out; see `settle`."""
    (note,) = settle((bad, kept))
    if note:
        rank_zero_info(note)


def count_text(dropped: int, unit: str = "row") -> str:
    """Return what the description of a data set says of the rows, or other units, that were left out."""
    return f", {dropped:,} {unit}{'s' * (dropped != 1)} dropped" if dropped else ""
