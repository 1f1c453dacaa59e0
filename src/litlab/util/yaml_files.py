"""How every YAML file of a user is read: its encoding, and what YAML accepts although it is a mistake.

A second ``trainer:`` silently replaces the first, an anchor may hold itself, and a few lines of aliases can stand for
a billion values. All of this is refused here, in one line with file and line, before another library sees the text.
"""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from litlab.errors import UserError
from litlab.util.text import nearest

LARGEST = 2**20  # bytes of a file
DEEPEST = 50  # blocks in blocks
MOST = 20_000  # values, each alias counted as what it stands for
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16: it begins like it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where it was built: ten times as fast


class Loader(_FASTEST):
    """YAML as jsonargparse reads it: 1e-3 is a number, a date is text."""

    yaml_implicit_resolvers: ClassVar[dict] = {
        first: [pair for pair in pairs if pair[0] not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{FLOAT.pattern})$"), list("-+0123456789."))


def read_mapping(file: Path, example: str = "trainer: {max_epochs: 3}") -> dict[str, Any]:
    """Read a YAML file of keys and values.

    Args:
        file: The file.
        example: A line that such a file could hold, for the message.

    Raises:
        UserError: If it can't be read, is not YAML, or holds something else.
    """
    text = read_text(file)
    check_mapping(check(text, str(file)), str(file), example)
    return yaml.load(text, Loader=Loader)


def check_mapping(root: yaml.Node | None, name: str, example: str = "trainer: {max_epochs: 3}") -> yaml.MappingNode:
    """Return the root of a YAML file of keys and values.

    Raises:
        UserError: If it is something else.
    """
    if isinstance(root, yaml.MappingNode):
        return root
    kind = "nothing" if root is None else "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
    raise UserError(f"{name}: the file holds {kind}; it needs keys and values, such as {example}")


def read_text(file: Path) -> str:
    """Read a text file in UTF-8, UTF-16 or UTF-32, with or without a byte order mark, or in Latin-1.

    Raises:
        UserError: If it can't be read, or is not text.
    """
    try:
        if file.is_dir():
            raise UserError(f"{file}: it is a folder; give a YAML file")
        if file.is_fifo() and not str(file).startswith(("/dev/", "/proc/")):  # the shell's own pipes are there
            raise UserError(f"{file}: it is a named pipe; give a YAML file")
        with file.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except FileNotFoundError:
        others = [str(path) for path in Path("configs").rglob("*.yaml")]
        raise UserError(f"{file}: no such file{nearest(str(file), others)}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        name = str(file) if len(str(file)) < 80 else f"{str(file)[:60]}..."
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{name!r}: the file can't be read ({reason}); give another one") from error
    if len(content) > LARGEST:
        raise UserError(f"{file}: it is larger than {LARGEST // 2**20} MB; give a config")
    text = _decoded(content)
    if "\0" in text:
        raise UserError(f"{file}: it is a binary file; give a YAML file")
    return text


def check(text: str, name: str) -> yaml.Node | None:
    """Refuse what is not YAML, and what is YAML but can only be a mistake.

    Args:
        text: The YAML.
        name: What messages call it: the file, or a flag.

    Returns:
        Its nodes, which know their lines; None for an empty text.

    Raises:
        UserError: If something is wrong, with the line.
    """
    try:
        root = nodes(text, name)
        yaml.load(text, Loader=Loader)  # tags and values
    except (yaml.YAMLError, ValueError) as error:  # ValueError: !!int abc
        raise UserError(_syntax(error, text, name)) from error
    return root


def nodes(text: str, name: str) -> yaml.Node | None:
    """Return the nodes of a YAML text, without a look at its tags and values.

    Raises:
        UserError: If it is YAML, but can only be a mistake.
        yaml.YAMLError: If it is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=Loader):  # needs no recursion, unlike all that follows
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise _too_deep(event, name)
    root = yaml.compose(text, Loader=Loader)
    if root is not None:
        _Checker(name).measure(root, ())
    return root


class _Checker:
    """Checks the nodes of one YAML text."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._measured: dict[int, tuple[int, int]] = {}  # by node: one with many aliases is looked at once
        self._open: set[int] = set()

    def measure(self, node: yaml.Node, path: tuple[str, ...]) -> tuple[int, int]:
        """Return the number of values in a node, and how deep they are.

        Raises:
            UserError: If the node, or one in it, is a mistake.
        """
        if id(node) in self._open:
            raise self._error(node, path, "the anchor contains itself; remove one of the two")
        if id(node) not in self._measured:
            self._open.add(id(node))
            inside = [self.measure(item, where) for where, item in self._items(node, path)]
            count, depth = 1 + sum(one for one, _ in inside), 1 + max((one for _, one in inside), default=0)
            if count > MOST:
                raise self._error(node, path, f"more than {MOST:,} values, aliases included; use fewer")
            if depth > DEEPEST:
                raise _too_deep(node, self._name)
            self._open.remove(id(node))
            self._measured[id(node)] = count, depth
        return self._measured[id(node)]

    def _items(self, node: yaml.Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], yaml.Node]]:
        """Yield the nodes in a node, each with its path."""
        if isinstance(node, yaml.SequenceNode):
            yield from (((*path, str(number)), item) for number, item in enumerate(node.value))
        if not isinstance(node, yaml.MappingNode):
            return
        names_a_class = "class_path" in (key.value for key, _ in node.value)
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = self._key(key, path, names_a_class)
            if name in lines:
                what = f"the key is there twice, first in line {lines[name]}; keep one"
                raise self._error(key, (*path, name), what)
            lines[name] = key.start_mark.line + 1
            yield (*path, name), value

    def _key(self, key: yaml.Node, path: tuple[str, ...], names_a_class: bool) -> str:
        """Return the text of a key, if it is one that settings can have."""
        kind = key.tag.rpartition(":")[2]
        settings = len(path) < 2 or path[-1] == "init_args" or names_a_class  # elsewhere a key may be a number
        if kind in ("str", "merge", "value") or (kind == "int" and not settings):
            return key.value
        what = {"bool": "true or false", "null": "null", "int": "a number", "float": "a number"}.get(kind, "no text")
        text = key.value if isinstance(key.value, str) else "?"
        raise self._error(key, (*path, text), f"YAML reads the key as {what}; quote it")

    def _error(self, node: yaml.Node, path: tuple[str, ...], what: str) -> UserError:
        return UserError(flat(f"{place(self._name, node)}: {'.'.join(path) or 'the file'}: {what}"))


def place(name: str, node: yaml.Node | yaml.Event) -> str:
    """Return where a node is, as messages say it: file and line, or the flag alone."""
    return name if name.startswith("-") else f"{name}:{node.start_mark.line + 1}"


def flat(text: str) -> str:
    """Return a text with parts of the user's own as one line that can be printed, with endless words cut short."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return re.sub(r"\S{200,}", lambda word: f"{word[0][:80]}...", " ".join(line.split()))


def _too_deep(node: yaml.Node | yaml.Event, name: str) -> UserError:
    return UserError(f"{place(name, node)}: more than {DEEPEST} levels of nesting; use fewer")


def _decoded(content: bytes) -> str:
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return content.decode(encoding, errors="replace")
    if content[1:2] == b"\0" != content[:1]:  # YAML begins with an ASCII character
        return content.decode("utf-16-le", errors="replace")
    if content[:1] == b"\0" != content[1:2]:
        return content.decode("utf-16-be", errors="replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")  # Latin-1 with the euro sign, as Windows writes it


def _syntax(error: Exception, text: str, name: str) -> str:
    """Return what is wrong with a text that is not YAML."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    lines = text.splitlines()
    line = mark.line if mark else text.count("\n", 0, max(0, getattr(error, "position", 0)))
    line = min(line, len(lines) - 1)
    if "expected a single document" in str(error):
        problem = "a second document begins here; keep one"
    elif "could not determine a constructor" in problem:
        tag = problem.rpartition("tag ")[2].replace("tag:yaml.org,2002:", "!!")
        problem = f"the tag {tag} is not allowed; leave it out"
    elif mark and "\t" in lines[line][: mark.column + 1]:
        problem = "there is a tab; indent with spaces"
    elif mark and mark.index >= len(text.rstrip()):
        problem = "it ends too early; close every bracket and quote"
    elif problem == "found character that cannot start any token":
        problem = f"a value can't begin with {lines[line][mark.column] if mark else 'this'}; put it in quotes"
    where = name if name.startswith("-") else f"{name}:{line + 1}"
    return flat(f"{where}: not valid YAML: {problem.removesuffix('.')}")


def find_line(file: Path, key: str) -> int | None:
    """Return the line of a YAML file that sets a key such as ``model.optimizer.lr``; None if it does not.

    Args:
        file: The file.
        key: Dotted, without ``init_args``.
    """
    node = yaml.compose(file.read_text(encoding="utf-8-sig"), Loader=Loader)
    line = None
    for name in key.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        inside = {one.value.rstrip("+"): (one, value) for one, value in pairs}
        if name not in inside and "init_args" in inside:
            arguments = inside["init_args"][1]
            pairs = arguments.value if isinstance(arguments, yaml.MappingNode) else []
            inside = {one.value.rstrip("+"): (one, value) for one, value in pairs}
        if name not in inside:
            return None
        at, node = inside[name]
        line = at.start_mark.line + 1
    return line
