"""What the files of a run say of it. Nothing is computed, and none of the run's code is imported."""

import ast
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import litlab
from litlab.commands.report.curves import Curves, read_curves
from litlab.commands.report.results_record import is_generated, read_baselines
from litlab.commands.report.schema import check_entries
from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.masking import mask
from litlab.runs.settings import flatten, read_config
from litlab.util.team import package, package_folder


@dataclass(frozen=True)
class Facts:
    """A run as its files describe it, secrets masked.

    Args:
        run: The run.
        state: Of ``status.json``, {} where it is missing or damaged, like the others.
        metrics: Of ``metrics.json``.
        made: Of ``provenance.json``.
        config: Of ``config.yaml``.
        baselines: Test metrics of each baseline, by its name.
        curves: What was logged for TensorBoard.
        random_weights: What the run has noted of weights that should be pretrained and are random; "" for none.
        problems: Files that can't be read, a line each.
    """

    run: RunFolder
    state: dict[str, Any]
    metrics: dict[str, Any]
    made: dict[str, Any]
    config: dict[str, Any]
    baselines: dict[str, dict[str, float]]
    curves: Curves
    random_weights: str
    problems: list[str]

    @property
    def status(self) -> str:
        """How the run ended."""
        return self.state.get("status") or "unknown"

    @property
    def generated(self) -> bool:
        """Whether its data was generated."""
        known = is_generated(self.made)
        return (self.run.path / "GENERATED_DATA.txt").is_file() if known is None else known

    @property
    def settings(self) -> dict[str, Any]:
        """The config by dotted key."""
        return flatten(self.config) if self.config else {}

    @property
    def seconds(self) -> float | None:
        """Seconds that it took, without the test."""
        return self.metrics.get("seconds")

    @property
    def samples_per_second(self) -> float | None:
        """Speed of the median epoch."""
        points = self.curves.get("time/samples_per_second")
        return statistics.median(value for _, value in points) if points else None


def read_facts(run: RunFolder) -> Facts:
    """Read the files of a run; those that are damaged are listed as problems."""
    problems: list[str] = []
    state = read_or_note(problems, _read_state, run)
    metrics, made = (read_or_note(problems, _read_checked, path) for path in (run.metrics, run.provenance))
    config = read_or_note(problems, read_config, run.config) if run.config.is_file() else {}
    baselines = read_or_note(problems, read_baselines, run)
    if not run.config.is_file():
        problems.append(f"{run.config} is missing: the settings of the run are not known.")
    note = run.path / "RANDOM_WEIGHTS.txt"
    random = note.read_text(encoding="utf-8", errors="replace").strip() if note.is_file() else ""
    curves = read_curves(run.path, problems)
    return Facts(run, mask(state), metrics, mask(made), mask(config), baselines, curves, random, problems)


def read_or_note(problems: list[str], read: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return what a function reads; {} where it raises a `UserError`, whose message is added to the problems."""
    try:
        return read(*arguments)
    except UserError as error:
        problems.append(str(error))
        return {}


def _read_state(run: RunFolder) -> dict[str, Any]:
    return check_entries(run.status, run.state())


def _read_checked(path: Path) -> dict[str, Any]:
    return check_entries(path, read_json(path))


def class_line(class_path: str) -> str | None:
    """Return the first line of the docstring of a class, by its source, which is not run.

    Args:
        class_path: Its dotted path. Only classes of the team's package and of litlab are looked up.

    Returns:
        The line, "" for one without a docstring or of a library; None for a class that is no longer there, or whose
        file can't be parsed.
    """
    module, _, name = class_path.rpartition(".")
    root, *parts = module.split(".")
    folders = {package(): package_folder(), "litlab": Path(litlab.__file__).parent}
    if root not in folders or not all(part.isidentifier() for part in parts):
        return ""
    path = folders[root].joinpath(*parts)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return None
    try:
        nodes = ast.parse(file.read_text(encoding="utf-8", errors="replace")).body
        nodes += [inner for node in nodes if isinstance(node, ast.If) for inner in node.body]  # if TYPE_CHECKING
    except (SyntaxError, ValueError):  # the latter from Python 3.11 on a null byte
        return None
    around = [root, *parts] if path.is_dir() else [root, *parts[:-1]]
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0].replace("`", "")
        if isinstance(node, ast.ImportFrom):
            source = around[: len(around) + 1 - node.level] if node.level else []
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return class_line(".".join(filter(None, [*source, node.module, alias.name])))
    return None
