"""``python -m PACKAGE new``: write an experiment that runs as it is, to be changed."""

import ast
import os
from pathlib import Path

from litlab.commands.scaffold.names import check_classes, check_name, class_name
from litlab.commands.scaffold.tree import CONFIGS, Project, here
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.util.files import write_atomically
from litlab.util.options import Options, answer
from litlab.util.team import typed
from litlab.util.text import nearest

TEMPLATES = Path(__file__).parent / "templates"
# The kinds, each with the DataModule of litlab that its config names with --model-only.
KINDS = {
    "cifar": "ImageData",
    "text": "TextData",
    "forecast": "SeriesData",
    "tabular": "TabularData",
    "linear": "TabularData",
}
# What each template becomes, and what it is. A kind has some of them.
PARTS = {
    "network.py": ("{source}/networks/{name}.py", "the network, a plain nn.Module"),
    "model.py": ("{source}/models/{name}.py", "the model, a plain LightningModule"),
    "data.py": ("{source}/data/{name}.py", "the DataModule"),
    "config.yaml": ("{configs}/{name}.yaml", "the experiment"),
    "test.py": ("{tests}/test_{name}.py", "its test"),
    "short.py": ("{tests}/short/{cls}Data.py", "how its data is made small for tests"),
}
OF_DATA = ("data.py", "short.py")
PACKAGES = {  # what the __init__.py says of a folder that is made
    "networks": "Plain networks: nothing of Lightning in here.",
    "models": "Models: LightningModules, one experiment a file.",
    "data": "Data of the experiments.",
    "short": "How each DataModule is made small for a test: a file of its class' name.",
}
DESCRIPTION = """\
Write a new experiment: network or model, DataModule, config and test. All of it runs at once, also without an
internet connection; then change it. --like says what it begins as:

  cifar      a network for images, trained by litlab's Classifier
  text       a network for texts, trained by litlab's Classifier
  forecast   a network for time series, trained by litlab's Forecaster
  tabular    a network for tables, trained by litlab's Classifier
  linear     a plain LightningModule and a plain LightningDataModule, with nothing of litlab

  %(prog)s mine --like cifar
  %(prog)s mine --like text --model-only      for data that is read without code
"""


def main(arguments: list[str]) -> int:
    """Run the command ``new`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_new, arguments)


def _new(arguments: list[str]) -> int:
    options = Options("new", DESCRIPTION)
    options.add_argument("name", metavar="NAME", help="its name: lower-case letters, digits and _")
    options.add_argument("--like", metavar="KIND", required=True, help=", ".join(KINDS))
    options.add_argument(
        "--model-only",
        action="store_true",
        help="write no DataModule: the config names ImageData, TextData, SeriesData or TabularData of litlab, which "
        "read your files; for linear it is TabularData",
    )
    chosen = options.parse_args(arguments)
    if chosen.like not in KINDS:
        hint = nearest(chosen.like, KINDS, f"; choose from {', '.join(KINDS)}")
        raise UserError(f"new: --like: there is no kind '{chosen.like}'{hint}")
    project = here("new")
    if not project.tests.is_dir():
        raise UserError(f"new: there is no {project.tests}/ for its test; make it")
    files = planned(project, chosen.name, chosen.like, own_data=not chosen.model_only)
    write_all({path: text for path, (text, _) in files.items()})

    width = max(len(str(path)) for path in files)
    print("\n".join(f"  {path!s:{width}}  {what}" for path, (_, what) in files.items()))
    if chosen.model_only:
        print(f"Its data is {KINDS[chosen.like]} of litlab.")
    config, smoke = f"{CONFIGS}/{chosen.name}.yaml", CONFIGS / "with/smoke.yaml"
    quick, runs = ("--check",), f"Its runs are kept in {ROOT}/{chosen.name}/."
    if smoke.is_file():
        quick = ("--config", str(smoke))
        runs = f"The first leaves its run in {ROOT}/{smoke.stem}/, the last in {ROOT}/{chosen.name}/."
    print(
        "Run it in seconds, test it, train it:\n"
        f"  {typed('fit', '--config', config, *quick)}\n"
        f"  python -m pytest {project.tests}/test_{chosen.name}.py\n"
        f"  {typed('fit', '--config', config)}\n"
        f"{runs}"
    )
    return 0


def planned(project: Project, name: str, kind: str, own_data: bool) -> dict[Path, tuple[str, str]]:
    """Return the files of a new experiment: for each its text, and what it is.

    Args:
        project: Where they are to be written.
        name: The experiment's name.
        kind: One of `KINDS`.
        own_data: Whether it gets a DataModule of its own.

    Raises:
        UserError: If the name can't be used, or one of the files, or a class in them, is there already.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    check_name(name, project)
    cls = class_name(name)
    values = {"name": name, "Name": cls, "package": project.package, "command": typed(), "own_data": own_data}
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES / kind), undefined=StrictUndefined, keep_trailing_newline=True,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    files: dict[Path, tuple[str, str]] = {}
    for part, (place, what) in PARTS.items():
        if f"{part}.j2" in templates.list_templates() and (own_data or part not in OF_DATA):
            path = Path(place.format(name=name, cls=cls, source=project.source, configs=CONFIGS, tests=project.tests))
            files[path] = templates.get_template(f"{part}.j2").render(values), what
    for path in files:
        if os.path.lexists(path):
            raise UserError(f"new: {path} is there already; choose another name")
    check_classes([cls, f"{cls}Data"] if own_data else [cls], project)
    for path, (text, _) in files.items():
        if path.suffix == ".py" and cls in imported_names(text):
            raise UserError(f"new: {path} would import another {cls}; choose another name")
    for folder in sorted({path.parent for path in files if path.suffix == ".py"}):
        if not (folder / "__init__.py").exists():
            files[folder / "__init__.py"] = package_text(folder), "makes a package of the folder"
    return files


def package_text(folder: Path) -> str:
    """Return the text of an ``__init__.py`` that is written together with an experiment."""
    return f'"""{PACKAGES.get(folder.name, "Tests of the experiments.")}"""\n'


def imported_names(text: str) -> set[str]:
    """Return the names that a module imports."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name for node in nodes for alias in node.names}


def write_all(files: dict[Path, str]) -> None:
    """Write new files, all or none.

    Args:
        files: The text of each.

    Raises:
        UserError: If one can't be written.
    """
    made: list[Path] = []
    path = Path()
    try:
        for path, text in files.items():
            for folder in reversed([folder for folder in path.parents if not folder.exists()]):
                folder.mkdir()
                made.append(folder)
            write_atomically(path, lambda stream, text=text: stream.write(text.encode()))
            made.append(path)
    except BaseException as error:
        for one in reversed(made):
            one.rmdir() if one.is_dir() else one.unlink()
        if isinstance(error, OSError):
            raise UserError(f"new: {path} can't be written ({error.strerror}), so nothing was") from error
        raise
