"""Short class names: only the modules of the classes that a command names are imported."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from litlab.util.team import package, package_folder

ROOMS = ("callbacks", "data", "metrics", "nn", "optim", "parallel", "tasks")  # of litlab, whose classes YAML may name
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
WORD = re.compile(r"(?<![\w.])[A-Z]\w*")
COMMENT = re.compile(r"(^|\s)#.*")


@cache
def find_classes(team: str) -> dict[str, list[str]]:
    """Return the modules of all classes of litlab and the team's package, by class name; nothing is imported.

    Args:
        team: Import name of the team's package.
    """
    litlab = Path(__file__).parents[1]
    files = [file for room in ROOMS for file in (litlab / room).rglob("*.py")]
    modules = {f"litlab.{_dotted(file, litlab)}": file for file in files}
    folder = package_folder()
    modules |= {f"{team}.{_dotted(file, folder)}": file for file in folder.rglob("*.py")}

    found: dict[str, list[str]] = {}
    for module, file in modules.items():
        for name in CLASS.findall(file.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(module)
    return found


def import_classes(texts: Iterable[str]) -> None:
    """Import the classes that texts such as configs and flags name, so that the parser finds them by short name."""
    classes = find_classes(package())
    words = {word for text in texts for word in WORD.findall(COMMENT.sub("", text))}
    for word in words & classes.keys():
        for module in classes[word]:
            import_module(module)


def import_all_classes() -> None:
    """Import every class that a config could name, for help, completion and schemas."""
    import_classes(find_classes(package()))


def _dotted(file: Path, folder: Path) -> str:
    return ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
