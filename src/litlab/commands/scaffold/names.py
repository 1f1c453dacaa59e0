"""What an experiment may be called."""

import builtins
import importlib.util
import keyword
import re
from pathlib import Path

import yaml

from litlab.commands.scaffold.tree import Project, classes_in
from litlab.errors import UserError

LONGEST = 60  # characters: no line of the files becomes too long
# What `--run` and `--resume` mean by a word, and what else is in the folder of the runs.
TAKEN = ("auto", "bench", "best", "default", "last", "smoke", "sweeps")
LITLAB = Path(__file__).parents[2]


def class_name(name: str) -> str:
    """Return the name of the class of an experiment: ``MyNet`` for ``my_net``."""
    return "".join(part.capitalize() for part in name.split("_"))


def check_name(name: str, project: Project) -> None:
    """Check that an experiment can have a name, and no module has it.

    Args:
        name: What was typed.
        project: Where it is to be written.

    Raises:
        UserError: If not.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", name, flags=re.ASCII).lower().strip("_")
        hint = f", such as {words}" if re.fullmatch(r"[a-z][a-z0-9_]*", words) else ""
        raise UserError(
            f"new: {name!r} can't be the name of a module; use lower-case letters, digits and _, and begin with a "
            f"letter{hint}"
        )
    if len(name) > LONGEST:
        raise UserError(f"new: a name of {len(name)} characters is too long; use at most {LONGEST}")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise UserError(f"new: {name} is a keyword of Python; choose another name")
    if keyword.iskeyword(class_name(name)) or hasattr(builtins, class_name(name)):
        raise UserError(f"new: its class would be {class_name(name)}, which is Python's own; choose another name")
    if not isinstance(yaml.safe_load(name), str):
        raise UserError(f"new: {name} is not a text in YAML, where the config has it; choose another name")
    if name in TAKEN or re.fullmatch(r"version_\d+", name):
        raise UserError(f"new: {name} has another meaning where runs are named; choose another name")
    found = importlib.util.find_spec(name)
    if found is not None and found.origin:  # else it is a folder here, which nobody imports
        raise UserError(f"new: {name} is a module of Python or of an installed package; choose another name")
    for path in project.source.rglob("*"):
        if path.stem.lower() == name and (path.suffix == ".py" or path.is_dir()):
            raise UserError(f"new: {path} is there already; choose another name")


def check_classes(names: list[str], project: Project) -> None:
    """Check that no other class has one of these names, as configs give them alone.

    Args:
        names: The names.
        project: Where the classes are to be written.

    Raises:
        UserError: If one has.
    """
    known = {name: Path("litlab") for module in LITLAB.rglob("*.py") for name in classes_in(module)} | project.classes
    for name in names:
        if name in known:
            raise UserError(f"new: there is a class {name} in {known[name]} already; choose another name")
