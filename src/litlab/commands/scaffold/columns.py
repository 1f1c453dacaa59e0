"""Listings in which words have become longer or shorter: what stood below each other does so again."""

import re

PARTS = re.compile(r"(.*?[^\s#]) {2,}(\S.*)")  # of a line: what is before its first gap, and after it
LEAST = 2  # spaces of a gap


def in_columns(old: str, new: str) -> str:
    """Return a page whose words have changed with its columns in line.

    The gaps of a block of code that end at the same place are a column. It stays there, or moves to the right as far as
    its longest line needs.

    Args:
        old: The page before.
        new: The page now, with the same lines and the same gaps in them.
    """
    before, now = old.split("\n"), new.split("\n")
    columns: dict[tuple[int, int], list[int]] = {}  # the numbers of its lines, by block and place
    block = 0
    for number, line in enumerate(before):
        block += line.lstrip().startswith("```")
        if parts := PARTS.match(line):
            columns.setdefault((block, parts.start(2)), []).append(number)
    for (_, place), numbers in columns.items():
        if len(numbers) == 1 and before[numbers[0]][place - LEAST - 1] != " ":
            continue  # it stands below nothing
        found = {number: parts.groups() for number in numbers if (parts := PARTS.match(now[number]))}
        place = max(place, *(len(left) + LEAST for left, _ in found.values()))
        for number, (left, right) in found.items():
            now[number] = left.ljust(place) + right
    return "\n".join(now)
