"""What is wrong with settings that the parser refuses: where they are, the key, and what would be right.

jsonargparse describes a mistake as a tree of every type that it tried, ten to forty lines for one misspelt word, and
not where it is. So when it refuses a command, the files and flags are checked once more against the types of the
parser, from the outside in, and the first thing that does not fit is the mistake.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from jsonargparse import ArgumentParser
from yaml.constructor import SafeConstructor

from litlab.cli.bases import BASE
from litlab.cli.class_paths import a_class, find_class, is_general
from litlab.cli.hints import accepts, kind, made_by, options, parameters, takes_null, types_of
from litlab.cli.wrong_values import shown, wrong
from litlab.errors import UserError
from litlab.util.nearest import nearest
from litlab.util.renamed import new_setting
from litlab.util.yaml_files import check, check_mapping, place, read_text

SPEC = ("class_path", "init_args", "dict_kwargs")


class Diagnosis:
    """Checks the settings of a command, one file or flag after the other.

    Args:
        parser: The parser of the verb.
    """

    def __init__(self, parser: ArgumentParser) -> None:
        self._types = types_of(parser)
        self._name = ""  # of the file or flag
        self._flag: tuple[yaml.Node, str, UserError | None] | None = None  # its value, and why that is not YAML
        self._classes: dict[str, tuple[Any, int, str]] = {}  # by key: class, arguments filled in later, where
        self._given: dict[str, set[str]] = {}  # by key of a class: which of its settings were given
        self._last: dict[str, str] = {}  # by key of a list: that of its last item, which --key.setting means

    def file(self, name: str, root: yaml.Node | None) -> None:
        """Check a config file.

        Raises:
            UserError: If something in it is wrong.
        """
        self._name, self._flag = name, None
        for key, value in check_mapping(root, name).value:
            if key.value == BASE:  # that of a file has been taken out
                raise self._error(key, BASE, "only a config file can have one; name it with a --config in front")
            self._setting(self._types, "", key.value, value, key)

    def flag(self, name: str, text: str | None) -> None:
        """Check a flag, and its value if it has one.

        Raises:
            UserError: If there is none of its name, or its value is wrong.
        """
        if text is None and self._types.get(name.lstrip("-")) is bool:
            return
        text, problem = text or "", None
        node: yaml.Node = yaml.ScalarNode("tag:yaml.org,2002:str", text)
        try:
            node = check(text, name) or node
        except UserError as error:
            problem = error  # a mistake, unless a text is wanted
        self._name, self._flag = name, (node, text, problem)
        self._setting(self._types, "", name.lstrip("-"), node, node)

    def complete(self) -> None:
        """Check that no class lacks a setting, after all files and flags.

        Raises:
            UserError: If one does.
        """
        for key, (cls, positional, where) in self._classes.items():
            for name in sorted(parameters(cls, positional)[1] - self._given[key]):
                raise UserError(f"{_at(where, f'{key}.{name}')}: it is not set; {cls.__name__} needs it")

    def _setting(self, known: dict[str, Any], prefix: str, key: str, node: yaml.Node, at: yaml.Node) -> None:
        """Check one key of the command, or of a class."""
        name = key.removesuffix("+")
        if name in known:
            if prefix + name in self._last:
                self._classes.pop(prefix + name, None)
            self._check(node, known[name], prefix + name)
            return
        if any(other.startswith(f"{name}.") for other in known):  # a section
            with self._opened(node) as content:
                if not isinstance(content, yaml.MappingNode):
                    what = f"{shown(content)} is not valid; it must be a block of settings"
                    raise self._error(node, prefix + name, what)
                for inner, value in content.value:
                    self._setting(known, prefix, f"{name}.{inner.value}", value, inner)
            return
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            if (head := ".".join(parts[:cut])) in known:
                if (last := self._last.get(prefix + head)) in self._classes:
                    self._classes[prefix + head], self._given[prefix + head] = self._classes[last], self._given[last]
                for part in reversed(parts[cut:]):
                    pair = yaml.ScalarNode("tag:yaml.org,2002:str", part, at.start_mark), node
                    node = yaml.MappingNode("tag:yaml.org,2002:map", [pair], at.start_mark)
                self._check(node, known[head], prefix + head)
                return
        raise self._error(at, prefix + name, self._unknown(known, prefix, name))

    def _unknown(self, known: dict[str, Any], prefix: str, name: str) -> str:
        everywhere = set(self._types)
        for key, (cls, positional, _) in self._classes.items():
            everywhere |= {f"{key}.{one}" for one in parameters(cls, positional)[0]}
        last = name.rpartition(".")[2]
        elsewhere = next((key for key in sorted(everywhere) if key.rpartition(".")[2] == last), None)
        otherwise = f"; did you mean '{elsewhere}'?" if elsewhere else ""
        if prefix:
            cls = self._classes[prefix[:-1]][0]
            if new := new_setting(cls.__name__, name):
                return f"{cls.__name__} has no '{name}'; it is called '{new}' now"
            return f"{cls.__name__} has no '{name}'{nearest(name, known, otherwise)}"
        depth = name.count(".") + 1
        similar = {".".join(key.split(".")[:depth]) for key in everywhere} | {key.split(".")[0] for key in everywhere}
        return f"there is no such key{nearest(name, similar, otherwise)}"

    def _check(self, node: yaml.Node, hint: Any, key: str) -> None:
        """Check a value against its type; of several types, the error is that of the one it was meant for."""
        wanted = [option for option in options(hint) if option is not type(None)]
        if node.tag.endswith(":null"):
            if takes_null(hint):
                return
            raise self._error(node, key, wrong(node, wanted))
        mistakes: dict[Any, UserError] = {}
        for option in wanted:
            try:
                self._check_one(node, option, key)
                return
            except UserError as mistake:
                mistakes[option] = mistake
        if self._flag and self._flag[0] is node and self._flag[2] and not self._flag[1].lstrip()[:1].isalnum():
            raise self._flag[2]
        kinds = {kind(option) for option in mistakes}
        for option, mistake in mistakes.items():
            if isinstance(node, yaml.SequenceNode) and kind(option) == "list":
                raise mistake
            if isinstance(node, yaml.MappingNode) and kind(option) in ("class", "mapping"):
                raise mistake
            named = isinstance(node, yaml.ScalarNode) and node.tag.endswith(":str") and kind(option) == "class"
            if named and ("plain" not in kinds or "did you mean" in str(mistake) or "." in node.value):
                raise mistake
        raise self._error(node, key, wrong(node, list(mistakes)))

    def _check_one(self, node: yaml.Node, hint: Any, key: str) -> None:
        """Check a value against one type."""
        form = kind(hint)
        if form == "class":
            made, positional = made_by(hint)
            with self._opened(node) as content:
                self._check_class(content, made or get_origin(hint) or hint, positional, key)
        elif form == "list" and isinstance(node, yaml.SequenceNode) and len(get_args(hint)) == 1:
            for number, item in enumerate(node.value):
                self._last[key] = f"{key}.{number}"
                self._classes.pop(self._last[key], None)
                self._check(item, get_args(hint)[0], self._last[key])
        elif form == "mapping" and isinstance(node, yaml.MappingNode) and len(get_args(hint)) == 2:
            for name, value in node.value:
                self._check(value, get_args(hint)[1], f"{key}.{name.value}")
        elif not self._accepted(node, hint):
            raise self._error(node, key, wrong(node, [hint]))

    def _accepted(self, node: yaml.Node, hint: Any) -> bool:
        if self._flag and self._flag[0] is node and accepts(hint, self._flag[1]):
            return True
        return accepts(hint, SafeConstructor().construct_document(node))

    def _check_class(self, node: yaml.Node, base: type, positional: int, key: str) -> None:
        """Check a class path, or a block with class_path and init_args, or init_args for the class named before."""
        if isinstance(node, yaml.SequenceNode) or (isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":str")):
            raise self._error(node, key, wrong(node, [base]))
        if isinstance(node, yaml.ScalarNode):
            if not is_general(base) and not node.value[:1].isupper() and "." not in node.value:
                raise self._error(node, key, wrong(node, [base]))
            self._name_class(node, base, positional, key)
            return
        inside = {name.value: (name, value) for name, value in node.value}
        if "class_path" in inside:
            self._name_class(inside["class_path"][1], base, positional, key)
            for name in inside.keys() - set(SPEC):
                raise self._error(inside[name][0], f"{key}.{name}", "it is next to class_path; move it into init_args")
        elif key not in self._classes:
            if is_general(base):
                form = "{class_path: NAME, init_args: {...}}"
                raise self._error(node, key, f"there is no class_path; write {form} of {a_class(base)}")
            self._classes[key], self._given[key] = (base, positional, place(self._name, node)), set()
        settings = node
        if inside.keys() & set(SPEC):
            settings = inside["init_args"][1] if "init_args" in inside else yaml.MappingNode(node.tag, [])
        if not isinstance(settings, yaml.MappingNode):
            what = f"{shown(settings)} is not valid; it must be a block of settings"
            raise self._error(settings, f"{key}.init_args", what)
        for name, value in settings.value:
            self._given[key].add(name.value.split(".")[0])
            self._setting(parameters(*self._classes[key][:2])[0], f"{key}.", name.value, value, name)

    @contextlib.contextmanager
    def _opened(self, node: yaml.Node) -> Iterator[yaml.Node]:
        """Yield the content of the file that a value names, or else the value itself."""
        outside = self._name, self._flag
        if isinstance(node, yaml.ScalarNode) and os.path.isfile(node.value):  # False for what can't be a name
            self._name, self._flag = node.value, None
            node = check(read_text(Path(node.value)), node.value) or node
        yield node
        self._name, self._flag = outside

    def _name_class(self, node: yaml.Node, base: type, positional: int, key: str) -> None:
        if not isinstance(node, yaml.ScalarNode) or not node.tag.endswith(":str") or not node.value:
            what = f"{shown(node)} is not valid; it must be the name of {a_class(base)}"
            raise self._error(node, f"{key}.class_path", what)
        try:
            found = find_class(node.value, base)
        except UserError as error:
            raise self._error(node, key, str(error)) from error
        if key not in self._classes or self._classes[key][0] is not found:
            self._given[key] = set()
        self._classes[key] = found, positional, place(self._name, node)

    def _error(self, node: yaml.Node, key: str, what: str) -> UserError:
        return UserError(f"{_at(place(self._name, node), key)}: {what}")


def _at(where: str, key: str) -> str:
    """Return where a key is: the file and its line, or the flag, which may name the key already."""
    if where.startswith(f"--{key}"):
        return where
    return f"--{key}" if key.startswith(where.strip("-+") + ".") else f"{where}: {key}"
