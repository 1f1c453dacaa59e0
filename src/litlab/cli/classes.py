"""Where the classes are that configs name.

Only the modules of the classes that a command names are imported, so that short names find them.
What the config of a run or checkpoint may name is in `litlab.cli.trust`.
"""

import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from litlab.util.team import package, team_folders

# The folders of litlab whose classes YAML may name
ROOMS = ("callbacks", "data", "metrics", "nn", "optim", "parallel", "tasks")
# A class that begins at the margin: one inside of another has no short name
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
# `CifarCNN`, but not the end of `project.networks.CifarCNN`: dotted paths the parser imports itself
WORD = re.compile(r"(?<![\w.])[A-Z]\w*")


@cache
def find_classes(team: str) -> dict[str, list[str]]:
    """Return the modules of all classes of litlab, the team's package and the examples, by class
    name; nothing is imported.

    Args:
        team: Import name of the team's package.
    """
    # By their text: importing all of them takes seconds.
    litlab = Path(__file__).parents[1]
    folders = {f"litlab.{room}": litlab / room for room in ROOMS}
    folders |= team_folders()

    found: dict[str, list[str]] = {}
    for parent, folder in folders.items():
        for file in folder.rglob("*.py"):
            # An example's test lies beside its code.
            if parent == "examples" and file.name.startswith("test_"):
                continue
            module = ".".join(
                [parent, *file.relative_to(folder).with_suffix("").parts]
            ).removesuffix(".__init__")
            for name in CLASS.findall(file.read_text(encoding="utf-8")):
                # Of two classes with one name both are imported: the parser asks for the full path
                found.setdefault(name, []).append(module)
    return found


def import_classes(texts: Iterable[str]) -> None:
    """Import the classes that texts such as configs and flags name, so that the parser finds them
    by short name.
    """
    classes = find_classes(package())
    words = {word for text in texts for word in WORD.findall(text)}
    for word in words & classes.keys():
        for module in classes[word]:
            import_module(module)


def import_all_classes() -> None:
    """Import every class that a config could name, for help and schemas."""
    import_classes(find_classes(package()))


def find_imported(path: str) -> Any:
    """Return what a class path leads to, as far as its module has been imported; else None."""
    module, _, name = path.rpartition(".")
    # What stands before the name may be a class, too: `module.Outer.Inner`
    parent = sys.modules.get(module) or (find_imported(module) if "." in module else None)
    return getattr(parent, name, None)
