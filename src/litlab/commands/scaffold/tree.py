"""The files of a team's project: where they are, what modules and classes they hold, what they use of each other."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from litlab.cli.argv import resolve_bases
from litlab.errors import UserError
from litlab.util.team import package, package_folder
from litlab.util.yaml import read_mapping

CONFIGS = Path("configs")
DOTTED = re.compile(r"[A-Za-z_][\w.]*")
SET_TO = re.compile(r"(?:[=:]\s*|--[\w.+]+ )([A-Za-z_]\w*)")  # --data=Mine, --data Mine, class_path: Mine
CONFIG = re.compile(r"[\w./-]+\.yaml")


@dataclass(frozen=True)
class Project:
    """A project by its root, which is the working directory: all paths are relative to it.

    Args:
        package: Import name of the team's package.
        source: The package's folder.
    """

    package: str
    source: Path

    @property
    def tests(self) -> Path:
        """The folder of the team's tests."""
        return Path("tests") / self.package

    @cached_property
    def modules(self) -> list[Path]:
        """All modules of the package."""
        return sorted(self.source.rglob("*.py"))

    @cached_property
    def classes(self) -> dict[str, Path]:
        """The module of each class of the package, by the name that configs may give it alone."""
        return {name: module for module in self.modules for name in classes_in(module)}

    @cached_property
    def configs(self) -> list[Path]:
        """All configs, those of overlays and sweeps included."""
        return sorted(path for path in CONFIGS.rglob("*.yaml") if CONFIGS / "cluster" not in path.parents)

    @cached_property
    def files(self) -> list[Path]:
        """All files that may use one another: configs, modules, tests and benchmarks."""
        python = [path for folder in ("tests", "benchmarks") for path in sorted(Path(folder).rglob("*.py"))]
        of_litlab = Path("tests/litlab")  # which knows no experiment, but others of the same names
        return [*self.configs, *self.modules, *(path for path in python if not path.is_relative_to(of_litlab))]

    def uses(self, file: Path) -> set[Path]:
        """Return the files of the project that a file names: by import, class path, class name, or as a config.

        Raises:
            UserError: If it can't be read.
        """
        if file.suffix == ".yaml":
            content = read_mapping(file)
            texts = list(texts_in(content))
            found = {self.classes[text] for text in texts if text in self.classes}
            if "base" in content:
                found.update(map(relative, resolve_bases(content["base"], file)))
        else:
            tree = parsed(file)
            texts = strings(tree)
            found = {path for name in imports(tree, self._dotted(file)) for path in self._module(name)}
            if file.parent == self.tests / "short" and file.stem in self.classes:
                found.add(self.classes[file.stem])
        return found.union(path for text in texts for path in self._named(text)) - {file}

    def mentions(self, file: Path) -> set[Path]:
        """Return the files that a module may use: its text has a word that may be their class, or their config's name.

        Raises:
            UserError: If it can't be read.
        """
        if file.suffix == ".yaml":
            return set()
        texts = strings(parsed(file))
        found = {self.classes[text] for text in texts if text in self.classes}
        if ".yaml" in texts:  # it puts names of configs together, as in f"{name}.yaml"
            found.update(path for path in self.configs if path.parent == CONFIGS and path.stem in texts)
        return found - {file}

    def _named(self, text: str) -> Iterator[Path]:
        """Yield the files that a text names."""
        for word in SET_TO.findall(text):
            if word in self.classes:
                yield self.classes[word]
        for word in DOTTED.findall(text):
            yield from self._module(word)
        for word in CONFIG.findall(text):
            if (path := CONFIGS / word.lstrip("./").removeprefix("configs/")) in self.configs:
                yield path

    def _module(self, name: str) -> Iterator[Path]:
        """Yield the file of a dotted name: of a module, or of something in it."""
        for start, folder in ((self.package, self.source), (".".join(self.tests.parts), self.tests)):
            parts = name.removeprefix(f"{start}.").split(".") if name.startswith(f"{start}.") else []
            for count in range(len(parts), 0, -1):
                path = folder.joinpath(*parts[:count]).with_suffix(".py")
                if path.is_file():
                    yield path
                    break

    def _dotted(self, file: Path) -> str:
        """Return the package that a module is in, for relative imports."""
        if file.is_relative_to(self.source):
            return ".".join([self.package, *file.relative_to(self.source).parent.parts])
        return ".".join(file.parent.parts)


def here(verb: str) -> Project:
    """Return the project whose root is the working directory.

    Args:
        verb: The command, for the message.

    Raises:
        UserError: If its root is another folder.
    """
    source = package_folder().resolve()
    root = source.parent.parent if source.parent.name == "src" else source.parent
    if not (root / CONFIGS).is_dir():
        raise UserError(
            f"{verb}: there is no {CONFIGS}/ in {root}; make it, or, if that is a copy of the package, "
            "pip install --editable the project"
        )
    if Path.cwd().resolve() != root:
        raise UserError(f"{verb}: run it in the project's root, where {CONFIGS}/ is: cd {root}")
    return Project(package(), source.relative_to(root))


def parsed(module: Path) -> ast.Module:
    """Return a module's syntax tree.

    Raises:
        UserError: If it can't be read.
    """
    try:
        return ast.parse(module.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{module}: it can't be read, so what it uses is not known ({error}); correct it") from error


def classes_in(module: Path) -> list[str]:
    """Return the names of a module's classes."""
    return re.findall(r"^class (\w+)", module.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)


def relative(path: Path) -> Path:
    """Return a path relative to the working directory, where it is in it."""
    root = Path.cwd().resolve()
    return path.resolve().relative_to(root) if path.resolve().is_relative_to(root) else path


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts among keys and values of YAML."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield str(key)
            yield from texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_in(part)
    elif isinstance(value, str):
        yield value


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a module imports.

    Args:
        tree: The module.
        package: The package that it is in.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def strings(tree: ast.AST) -> list[str]:
    """Return the texts of a module without its docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]
