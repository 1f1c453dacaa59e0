"""``python -m PACKAGE new``: write an experiment that runs as it is, to be changed."""

import builtins
import keyword
import os
import re
from pathlib import Path

import yaml

from litlab.errors import UserError
from litlab.runs.folder import NO_EXPERIMENT
from litlab.util.options import Options
from litlab.util.team import package, package_folder, typed

CONFIGS = Path("configs")
TEMPLATES = Path(__file__).parent / "templates"
LITLAB = Path(__file__).parents[2]
NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
# The kinds, each with the DataModule of litlab that its config names with --model-only.
KINDS = {
    "cifar": "ImageData",
    "text": "TextData",
    "forecast": "SeriesData",
    "tabular": "TabularData",
    "linear": "TabularData",
}
# What each template becomes. A kind has some of them.
PLACES = {
    "network.py": "{source}/networks/{name}.py",
    "model.py": "{source}/models/{name}.py",
    "data.py": "{source}/data/{name}.py",
    "config.yaml": "configs/{name}.yaml",
    "test.py": "{tests}/test_{name}.py",
}
DESCRIPTION = """\
Write a new experiment: network or model, DataModule, config and test. It runs at once, even without
an internet connection; then change it. --like says what it starts from:

  cifar      a network for images, trained by litlab's Classifier
  text       a network for texts, trained by litlab's Classifier
  forecast   a network for time series, trained by litlab's Forecaster
  tabular    a network for tables, trained by litlab's Classifier
  linear     a plain LightningModule and a plain LightningDataModule, with nothing of litlab

or an example, which is copied: a folder in src/examples with model, data, config, test and page.

  %(prog)s mine --like cifar
  %(prog)s mine --like text --model-only      for data that is read without code
"""


def find_folders(command: str) -> tuple[Path, Path]:
    """Return the folders of the package and of its tests, relative to the project's root."""
    root = Path.cwd().resolve()
    source = package_folder().resolve()
    if not (root / CONFIGS).is_dir() or not source.is_relative_to(root):
        raise UserError(
            f"{command}: run it in the project's root, where {CONFIGS}/ and src/{package()}/ are"
        )
    return source.relative_to(root), Path("tests") / package()


def main(arguments: list[str]) -> int:
    options = Options("new", DESCRIPTION)
    options.add_argument("name", metavar="NAME", help="its name: lower-case letters, digits and _")
    options.add_argument(
        "--like", required=True, choices=[*KINDS, *list_examples()], help="what it starts from"
    )
    options.add_argument(
        "--model-only",
        action="store_true",
        help="write no DataModule: the config names litlab's ImageData, TextData, SeriesData or "
        "TabularData, which read your files",
    )
    chosen = options.parse_args(arguments)

    name, folder = chosen.name, f"src/examples/{chosen.name}"
    if chosen.like in KINDS:
        files = render_files(name, chosen.like, own_data=not chosen.model_only)
        config, test = f"{CONFIGS}/{name}.yaml", f"tests/{package()}/test_{name}.py"
    else:
        files = copy_example(name, chosen.like)
        config, test = f"{folder}/config.yaml", folder
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        init = path.parent / "__init__.py"
        if path.suffix == ".py" and not init.exists():
            init.write_text(f'"""The {path.parent.name} of the experiments."""\n')

    print("\n".join(f"  {path}" for path in files))
    print(
        "Run it in seconds, test it, train it:\n"
        f"  {typed('fit', '--config', config, '--check')}\n"
        f"  python -m pytest {test}\n"
        f"  {typed('fit', '--config', config)}"
    )
    return 0


def list_examples() -> list[str]:
    """Return the examples that can be copied: an operator, say, can have but one name."""
    folders = package_folder().with_name("examples").glob("*/model.py")
    return sorted(file.parent.name for file in folders)


def copy_example(name: str, like: str) -> dict[Path, str]:
    """Return the files of an example under another name, by their paths; its classes begin with
    that name.
    """
    source, _ = find_folders("new")
    check_name("new", name)
    example = source.with_name("examples") / like
    if os.path.lexists(example.with_name(name)):
        raise UserError(f"new: {example.with_name(name)} exists already; choose another name")
    texts = {file: file.read_text("utf-8") for file in example.glob("*.*")}
    classes = {found for text in texts.values() for found in CLASS.findall(text)}
    prefix = make_class_name(name)
    words = {found: prefix + found for found in classes if not found.startswith("Test")}
    words[like] = name
    pattern = re.compile(rf"\b({'|'.join(words)}|test_{like})\b")
    words[f"test_{like}"] = f"test_{name}"
    for found in classes:
        check_class(prefix + found, source)
    return {
        example.with_name(name) / pattern.sub(lambda match: words[match[1]], file.name): (
            pattern.sub(lambda match: words[match[1]], text)
        )
        for file, text in texts.items()
    }


def make_class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def render_files(name: str, kind: str, own_data: bool) -> dict[Path, str]:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    source, tests = find_folders("new")
    check_name("new", name)
    class_name = make_class_name(name)
    check_class(class_name, source)

    # A variable that is missing is an error, and no file ends without a line end.
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES / kind), undefined=StrictUndefined, trim_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    values = {
        "name": name,
        "Name": class_name,
        "package": package(),
        "command": typed(),
        "own_data": own_data,
    }

    # All are rendered, and all places found free, before the first is written.
    files: dict[Path, str] = {}
    for part, target in PLACES.items():
        if not (TEMPLATES / kind / f"{part}.j2").is_file() or (part == "data.py" and not own_data):
            continue
        path = Path(target.format(name=name, source=source, tests=tests))
        if os.path.lexists(path):
            raise UserError(f"new: {path} exists already; choose another name")
        files[path] = templates.get_template(f"{part}.j2").render(values)
    return files


def check_name(command: str, name: str) -> None:
    """Check that files and modules can have a name, by itself."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{command}: {name!r} is not a valid name; use lower-case letters, digits and _, and "
            "begin with a letter"
        )
    # Such as class in Python, true in YAML, seeds_0 for runs
    is_text = isinstance(yaml.safe_load(name), str)
    if keyword.iskeyword(name) or not is_text or NO_EXPERIMENT.fullmatch(name):
        raise UserError(
            f"{command}: {name} has another meaning in Python, in YAML or for runs; choose another "
            "name"
        )


def check_class(name: str, source: Path) -> None:
    """Check that no other class of Python, litlab, the sources or the examples has a name, as
    configs give it alone.
    """
    taken = {*dir(builtins), "Any", "DataLoader", "Tensor"}  # the last three: what the files import
    for folder in (LITLAB, source, source.with_name("examples")):
        for module in folder.rglob("*.py"):
            taken.update(CLASS.findall(module.read_text(encoding="utf-8")))
    for class_name in (name, f"{name}Data"):
        if class_name in taken:
            raise UserError(f"new: a class {class_name} exists already; choose another name")
