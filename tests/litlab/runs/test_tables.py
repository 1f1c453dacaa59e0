"""`python -m auks runs` and `compare`: tables of runs, also of runs of somebody else."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime

import pytest

from litlab.errors import UserError
from litlab.runs import compare, reproduce, table
from litlab.runs.find import find_run
from tests.litlab.runs.make import COMMIT, write, write_group, write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Runs of all kinds, written in an order that is not that of their time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    root = tmp_path / "lightning_logs"
    versions = {"python": "3.11.2", "torch": "2.14.0"}
    write_run(root, "cifar/version_1", best=0.9, test={"test/loss": 2.5, "test/acc": 0.88},
              hours_ago=2, dirty=True, versions=versions, width=32, commit=COMMIT)  # fmt: skip
    write_run(root, "cifar/version_0", best=0.8, test={"test/loss": 3.5, "test/acc": 0.78},
              hours_ago=5, versions={**versions, "torch": "2.15.0"}, commit="f" * 40)  # fmt: skip
    write_run(root, "cifar_vgg/version_0", best=0.99, generated=True, status="failed", hours_ago=4)
    write_run(root, "night/forecast/version_12", mode="min", monitor="val/mse", hours_ago=20_000)
    return root


@pytest.fixture
def show(root, capsys):
    """The cells of each row that a command prints, by its first one."""

    def rows(main, *arguments: str) -> dict[str, list[str]]:
        assert main([*arguments]) == 0
        return read_rows(capsys.readouterr().out)

    return rows


def read_rows(text: str) -> dict[str, list[str]]:
    lines = [re.split(" {2,}", line.strip()) for line in text.splitlines()]
    return {name: row for name, *row in lines}


def test_the_newest_first_with_its_results(root, show):
    rows = show(table.main)
    assert [*rows] == [
        "run", "cifar/version_1", "cifar_vgg/version_0", "cifar/version_0",
        "night/forecast/version_12",
        "cifar_vgg/version_0: RuntimeError: it broke (epoch 1, line a.py:7)",
    ]  # fmt: skip
    assert rows["run"] == ["status", "best", "test", "min", "started", "commit"]
    cells = rows["cifar/version_1"]
    assert cells[:4] == ["finished", "val/acc 0.9000", "0.8800", "1.5"]
    status = json.loads((root / "cifar/version_1/status.json").read_text())
    started = datetime.fromisoformat(status["started"]).astimezone()  # it was in another zone
    assert cells[-2] == f"{started:%m-%d %H:%M}"
    assert cells[-1] == "1234567*"
    assert rows["cifar/version_0"][-1] == "f" * 7
    assert rows["cifar_vgg/version_0"][:2] == ["failed, generated", "val/acc 0.9900"]
    results = {"test/iou[/dog]": 0.75, "test/x": 2.5}
    write_run(root, "iou/version_0", best=0.25, monitor="val/iou[cat]", test=results)
    shown = show(table.main, "iou", "--sort", "test/x")["iou/version_0"]
    # Names are no markup, and what is sorted by is shown
    assert shown[1:3] == ["test/x 2.5000", "test/iou[/dog] 0.7500"]


def test_runs_of_sweeps_are_counted_and_shown_where_they_are_named(root, show):
    write_run(root, "sweeps/night/trial_0000/seed_0/version_0", hours_ago=1)
    rows = show(table.main)
    assert "and 1 of sweeps, which `runs sweeps` lists" in rows
    assert not [name for name in rows if name.startswith("sweeps/")]
    assert "sweeps/night/trial_0000/seed_0/version_0" in show(table.main, "sweeps")


def test_a_narrow_terminal_has_the_results(root, show, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert show(table.main)["cifar/version_1"] == ["finished", "val/acc 0.9000", "0.8800", "1.5"]


def test_a_group_is_one_row_and_its_runs_are_shown_where_it_is_named(root, show):
    write_group(root, "cifar/seeds_0", [0.8, 0.9], hours_ago=3)
    rows = show(table.main, "cifar", "--sort", "val/acc")
    assert [*rows][1:] == ["cifar/version_1", "cifar/seeds_0", "cifar/version_0"]
    assert rows["cifar/seeds_0"][:2] == ["2 of 3, finished", "val/acc 0.8500 ± 0.0500"]
    by_loss = [*show(table.main, "cifar", "--sort", "test/loss")][1:]
    assert by_loss == ["cifar/version_1", "cifar/version_0", "cifar/seeds_0"]
    members = ["cifar/seeds_0/seed_1/version_0", "cifar/seeds_0/seed_0/version_0"]
    assert [*show(table.main, "cifar/seeds_0")][1:] == members
    assert [*show(table.main, "cifar/seeds_0/seed_0")][1:] == members[1:]


SIDE_BY_SIDE = """\
model.width                        16        32        64              -
model                              SmallCNN  SmallCNN  SmallCNN        B
model.num_layers                   -         -         -               3
trainer.callbacks.Pictures.images  -         -         -               32
val/acc                            0.8000    0.9000    0.8500 ± 0.0500  -
test/loss                          3.5000    2.5000    -               -
torch                              2.15.0    2.14.0    -               -
uncommitted                        false     true      false           false
"""
OLD = """
model: {class_path: a.B, init_args: {num_layers: 3}}
trainer:
  callbacks:
  - {class_path: litlab.callbacks.VRAM}
  - {class_path: a.Pictures, init_args: {images: 32}}
"""


def test_runs_side_by_side(root, show):
    """What differs: a group is one column, and a run may lack what another has."""
    write_group(root, "cifar/seeds_0", [0.8, 0.9], width=64, hours_ago=9)
    old = write_run(root, "old/version_0")
    old.config.write_text(OLD)
    old.metrics.unlink()
    rows = show(compare.main, "cifar/version_0", "cifar/version_1", "cifar/seeds_0", "old")
    assert rows == rows | read_rows(SIDE_BY_SIDE)
    two = show(compare.main, "cifar/version_0", "cifar/version_1")
    assert not {"seed_everything", "model", "python", "command", "started"} & two.keys()


@pytest.mark.parametrize(
    ("main", "arguments", "line"),
    [
        (table.main, "cifar --sort val/ac", "no run has a metric 'val/ac'; did you mean 'val/acc'"),
        (compare.main, "cifar lost", "lost/version_0/config.yaml: no such file"),
        (reproduce.main, "cifar_vgg", "it is not known from which commit"),
        (reproduce.main, "lost", "provenance.json: 'uncommitted' is not what a run writes there"),
    ],
)
def test_what_is_refused(root, main, arguments, line):
    write_run(root, "lost/version_0", hours_ago=9).config.unlink()
    write(root / "cifar_vgg/version_0/provenance.json", commit="--upload-pack=x; rm -rf ~")
    write(root / "lost/version_0/provenance.json", commit="abc", uncommitted="x")
    with pytest.raises(UserError, match=line):
        main(arguments.split())


BROKEN = {
    "cut": lambda path: path.write_text('{"val": {'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "pipe": os.mkfifo,
    "text": lambda path: write(path, started=1, val={"val/acc": "high"}, commit=[]),
    "best": lambda path: write(
        path, best={"monitor": "val/acc"}, status=[], seconds="long", hardware="a GPU"
    ),
    "time": lambda path: write(path, status="running", started="yesterday"),
    "mode": lambda path: write(path, best={"monitor": "val/acc", "mode": "up", "value": 1}),
    "fits": lambda path: write(path, commit="abc", continued=[{"commit": 1}]),
    "command": lambda path: write(path, command=[1]),
    "spread": lambda path: write(path, deviation={"val/acc": "wide"}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_damaged_file_marks_its_row_and_the_others_are_listed(root, show, kind, capsys):
    names = ("status", "metrics", "provenance")
    for name in names:
        run = write_run(root, f"bad/{name}", hours_ago=9)
        getattr(run, name).unlink()
        BROKEN[kind](getattr(run, name))
    rows = show(table.main)
    for name in names:
        assert rows[f"bad/{name}"][0].endswith(", a file is damaged")
        assert f"\nlightning_logs/bad/{name}/{name}.json: " in "\n".join(rows)
    assert rows["cifar/version_1"][:2] == ["finished", "val/acc 0.9000"]
    assert find_run("last").name == "cifar/version_1"
    rows = show(compare.main, *(f"bad/{name}" for name in names), "cifar/version_1")
    assert rows["val/acc"] == ["0.8000", "-", "0.8000", "0.9000"]
    assert rows["commit"][:2] == [COMMIT, COMMIT]
    assert table.main("bad --json --sort val/acc".split()) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_nothing_that_is_printed_controls_the_terminal(root, capsys):
    letters = "\x1b[31mred\x1b[0m a\rb \u202e"
    assert str(UserError(f"a\n{letters}")).isprintable()
    run = write_run(root, "foreign/version_0")
    write(run.status, status=f"x{letters}", reason=letters)
    best = {"monitor": f"val/{letters}", "mode": "max", "value": 1.0, "checkpoint": letters}
    write(run.metrics, best=best, test={f"test/{letters}": 0.5}, val={letters: 0.25})
    origin = {"commit": "abc", "versions": {letters: letters}, "data": {letters: letters}}
    write(run.provenance, **origin, uncommitted={"file": letters})
    write(run.config, model=letters, **{f"key{letters}": letters})
    for main, line in ((table.main, ""), (table.main, "--json"), (compare.main, "foreign cifar"),
                       (reproduce.main, "foreign")):  # fmt: skip
        main(line.split())
        printed = capsys.readouterr().out
        assert printed.replace("\n", "").isprintable(), ascii(printed)


def test_light_commands_import_neither_torch_nor_lightning(root):
    write_group(root, "cifar/seeds_0", [0.8, 0.9])
    code = (
        "import sys; from litlab.cli.main import run_command; codes = []\n"
        "for line in ('--help', 'runs', 'compare cifar/seeds_0 cifar_vgg', 'reproduce cifar'):\n"
        "    sys.argv[1:] = line.split(); codes.append(run_command('auks'))\n"
        "print(codes, {'torch', 'lightning', 'jsonargparse', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0] set()", done.stderr
