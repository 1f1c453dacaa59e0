"""Overlays stacked in pairs on the three experiments: they run, or one line says why not.

pytest -m matrix -n 3 tests/project/test_overlay_pairs.py     an hour and a half on two cores

What is refused is listed in docs/techniques.md, and nothing else is. A test that finds another refusal fails with the
row for that table.
"""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from tests.conftest import CONFIGS, ROOT, settings_of, shell, small_data
from tests.project.overlays import OVERLAYS, SMALL

PAGE = ROOT / "docs/techniques.md"
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| ([\w, ]+) \| (.*) \|$", re.MULTILINE)
SHORT = ["--trainer.max_epochs=2", "--trainer.log_every_n_steps=1", "--trainer.accelerator=cpu"]
SHORT += [f"--trainer.limit_{split}_batches={count}" for split, count in (("train", 8), ("val", 2), ("test", 2))]
SEARCHES = {  # in few steps, and measurements after few
    "batch_size_finder": {"max_val": 32},
    "lr_finder": {"num_training_steps": 30},
    "noise_scale": {"every_n_steps": 2},
}
# What inductor does is torch's to test, and takes minutes; the backward pass is compiled where it may matter. The first
# that is in a pair counts, or else it is `eager`.
BACKENDS = {
    "memory_budget": "aot_eager_decomp_partition",
    "compile": "aot_eager",
    "activation_checkpointing": "aot_eager",  # with batch norms it does not work with `eager`
}
NAMES = [path.stem for path in OVERLAYS]
NOT_KEYS = {"init_args", "class_path", "trainer", "model", "data"}


def settings(overlay: str) -> dict:
    return yaml.safe_load((CONFIGS / f"with/{overlay}.yaml").read_text())


def keys(block: dict) -> set[str]:
    """Return the keys that an overlay sets, and the classes that it names."""
    found: set[str] = set()
    for key, value in block.items():
        found.add(str(key).rstrip("+"))
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                found |= keys(part)
            elif key == "class_path" or key == "strategy":
                found.add(part.rpartition(".")[-1])
    return found - NOT_KEYS


def refused() -> dict[tuple[str, str, str], str]:
    """Return what the docs list: (experiment, overlay, other overlay or "alone") -> the line."""
    listed: dict[tuple[str, str, str], str] = {}
    for overlay, other, where, line in ROW.findall(PAGE.read_text()):
        for experiment in SMALL if where == "all" else where.split(", "):
            listed[experiment, overlay, other] = line.replace("\\|", "|")
    return listed


REFUSED = refused()
ALONE = [(experiment, name) for experiment in SMALL for name in NAMES]
PAIRS = [
    (experiment, *pair)
    for experiment in SMALL
    for pair in itertools.combinations(NAMES, 2)
    if not any((experiment, name, "alone") in REFUSED for name in pair)
]


def on_cpu(compiled: list[dict]) -> bool:
    """Return whether all modes are for a CPU too."""
    return all(one.get("mode") != "reduce-overhead" for one in compiled)


def overlay_file(folder: Path, name: str) -> Path:
    """Return an overlay's path; a search that it makes, or a wait, is shortened in a copy."""
    if name not in SEARCHES:
        return CONFIGS / f"with/{name}.yaml"
    [search] = (content := settings(name))["trainer"]["callbacks+"]
    search["init_args"] = search.get("init_args", {}) | SEARCHES[name]
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder / f"{name}.yaml"


def fit(request: pytest.FixtureRequest, folder: Path, experiment: str, overlays: Iterable[str]) -> str:
    """Fit for a few steps; return the line of a refusal."""
    config = CONFIGS / f"{experiment}.yaml"
    data = small_data(settings_of(config)["data"]["class_path"].rpartition(".")[-1], request)
    compiled = [settings(name)["compile"] for name in overlays if "compile" in settings(name)]
    flags = [] if "tta" in overlays else ["--test_after_fit=false"]  # the pictures of a test take longer than the fit
    backend = next((BACKENDS[name] for name in BACKENDS if name in overlays), "eager")
    flags += ["--compile.mode=default", f"--compile.backend={backend}"] if compiled and on_cpu(compiled) else []
    files = [part for name in overlays for part in ("--config", overlay_file(folder, name))]
    done = shell("fit", "--config", config, *files, *data, *SMALL[experiment], *SHORT, *flags, cwd=folder)
    lines = list({line for line in done.err.splitlines() if line.startswith("error: ")})  # of two processes: twice
    assert (done.code, len(lines)) in ((0, 0), (2, 1)), done.err[-3000:]
    assert "Traceback" not in done.err, done.err[-3000:]
    return lines[0].removeprefix("error: ").replace(f"{ROOT}/", "") if lines else ""


def check(experiment: str, overlay: str, other: str, line: str) -> None:
    listed = REFUSED.get((experiment, overlay, other), "")
    row = f"| `{overlay}` | `{other}` | {experiment} | {line.replace('|', chr(92) + '|')} |"
    assert line == listed, f"docs/techniques.md should have: {row}" if line else f"it runs, unlike: {listed}"


@pytest.mark.matrix
@pytest.mark.parametrize(("experiment", "overlay"), ALONE)
def test_alone(request, tmp_path, experiment, overlay):
    check(experiment, overlay, "alone", fit(request, tmp_path, experiment, [overlay]))


@pytest.mark.matrix
@pytest.mark.parametrize(("experiment", "first", "second"), PAIRS)
def test_pair(request, tmp_path, experiment, first, second):
    check(experiment, first, second, fit(request, tmp_path, experiment, [first, second]))


@pytest.mark.parametrize(
    ("case", "line"), REFUSED.items(), ids=lambda part: "-".join(part) if isinstance(part, tuple) else ""
)
def test_the_line_names_both(case, line):
    for name in case[1:]:
        assert name == "alone" or any(key in line for key in keys(settings(name))), f"{line!r} says nothing of {name}"
