"""Mentions of a package in the files of a project, told from the word that its name may be."""

import re
from collections.abc import Iterable

# Where {name} is the package, by what is before it and after it. {parts} are the modules in it and in its tests.
RULES = (
    (r"(?<![\w-])-m\s+", r"\b"),  # python -m NAME
    (r"""["']-m["'],\s*["']""", r"\b"),  # the same as a list of words
    (r"(?<![\w-])-m \w+ rename ", r"\b"),
    (r"(?<!\w)(?:src|tests)[/.]", r"(?![\w-])"),  # src/NAME, tests.NAME
    (r"\bfrom\s+", r"(?=\.\w|\s+import\b)"),
    (r"""(?:^|[;>"'`]|\\n)[ \t]*import\s+""", r"""(?=\s*(?:$|[.,;#"'\\]|as\s))"""),
    (r"(?<![\w.-])(?<!^\[)", r"(?=\.(?:{parts})\b)"),  # NAME.networks, but no [table.of.toml]
    (r"(?<![\w./-])", r"(?=/(?:{parts})\b)"),  # NAME/networks
    (r"""\\?["']""", r"""(?=\[\w|\.(?:\\?["']|{))"""),  # "NAME[extra]", "NAME.", f"NAME.{...}"
    (r"`", r"(?=`|\.\w|::|/)"),
    (r"-->\s*", r"\b"),  # the ends of an arrow in a diagram
    (r"(?<![\w-])", r"(?=\s*-->)"),
    (r"(?i:\b(?:package|module)|--cov)\s*[?:]?[:=]\s*", r"(?![\w.(\[-])"),  # package: NAME
    (r"pip (?:un)?install(?:\s+-\S+)*\s+['\"]?", r"(?=[\s\['\"]|$)"),
    (r"torch\.ops\.", r"\b"),  # the operators of the package have its name, too
    (r"(?<!\w)", r"(?=::\w)"),
    (r"TORCH_LIBRARY\w*\(\s*", r"\b"),
)
IMPORTED = r"^[ \t]*import {name}[ \t]*(?:$|[.,;#])"  # then the name alone is the package, too
ATTRIBUTE = r"(?<![\w./-]){name}(?=\.\w)"
QUOTED = r"""(?P<quote>\\?["']){name}(?=(?P=quote))"""
# What is left and looks like code, but is not a call, an argument, a key or a variable of that name.
LEFT = r"""(?:["'/@]|[=:]\s*){name}(?![\w-])(?!\s*[(=\[.]|["']\s*[:\]])|(?<![\w-]){name}(?:[/@]|\[\w|:\w)"""


class Mentions:
    """Replaces the names of a package.

    Args:
        names: Those that it had, or has.
        new: The one that it gets.
        parts: The names of modules and folders in the package, and in its tests.
    """

    def __init__(self, names: Iterable[str], new: str, parts: Iterable[str]) -> None:
        self._new = new
        known = "|".join(sorted({"__main__", "__init__", *map(re.escape, parts)}))
        any_name = f"(?:{'|'.join(map(re.escape, names))})"
        rules = (f"(?P<before>{before}){any_name}{after.replace('{parts}', known)}" for before, after in RULES)
        self._rules = [re.compile(rule, re.MULTILINE) for rule in rules]
        self._imported = re.compile(IMPORTED.replace("{name}", any_name), re.MULTILINE)
        self._attribute = re.compile(ATTRIBUTE.replace("{name}", any_name))
        self._quoted = re.compile(QUOTED.replace("{name}", any_name))
        self._left = re.compile(LEFT.replace("{name}", any_name))

    def replaced(self, text: str) -> tuple[str, int]:
        """Return a text with its mentions replaced, and how many there were."""
        total, new = 0, text
        if self._imported.search(text):
            new, total = self._attribute.subn(self._new, new)
        for rule in self._rules:
            new, count = rule.subn(lambda found: found["before"] + self._new, new)
            total += count
        before = new
        new = self._quoted.sub(lambda found: found[0] if _is_key(found) else found["quote"] + self._new, before)
        total += sum(not _is_key(found) for found in self._quoted.finditer(before))
        return new, total

    def left(self, text: str) -> list[tuple[int, str]]:
        """Return what may be a mention in a text and was not replaced: the line's number, and what is around it."""
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line[:1] != "["]
        found = ((number, line, self._left.search(line)) for number, line in lines)
        return [(number, line[max(0, it.start() - 50) : it.end() + 50].strip()) for number, line, it in found if it]


def _is_key(found: re.Match[str]) -> bool:
    """Return whether a quoted word is the key of a dictionary, as of a logger's settings, and not a value."""
    before, after = found.string[: found.start()].rstrip(), found.string[found.end() + len(found["quote"]) :]
    if re.match(r"\s*:", after):
        return before[-1:] in ("{", ",", "") or found.string[: found.start()].rstrip(" ")[-1:] == "\n"
    return re.search(r"[\w)\]]\[$|\.(?:get|pop|setdefault)\($", before[-20:]) is not None
