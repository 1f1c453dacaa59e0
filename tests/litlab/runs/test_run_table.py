"""`python -m auks runs`."""

import json
import subprocess
import sys

import pytest

from litlab.errors import UserError
from litlab.runs import table
from tests.litlab.runs.make import COMMIT, write_group, write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Runs of all kinds, written in an order that is not that of their time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    root = tmp_path / "lightning_logs"
    write_run(root, "cifar/version_1", best=0.9, test={"test/loss": 2.5, "test/acc": 0.88}, hours_ago=2, dirty=True)
    write_run(root, "cifar/version_0", best=0.8, test={"test/loss": 3.5, "test/acc": 0.78}, hours_ago=5)
    write_run(root, "cifar_vgg/version_0", best=0.99, generated=True, status="failed", hours_ago=4)
    write_run(root, "night/forecast/version_12", best=0.37, mode="min", monitor="val/mse", hours_ago=24 * 800)
    return root


@pytest.fixture
def runs(capsys):
    def run(*arguments: str) -> str:
        assert table.main([*arguments]) == 0
        return capsys.readouterr().out

    return run


def order(out: str) -> list[str]:
    return [
        line.split()[0] for line in out.splitlines() if "/" in line.split(" ")[0] and ":" not in line.split("  ")[0]
    ]


def test_the_newest_first_with_its_results(root, runs):
    out = runs()
    assert out.split("\n")[0].split() == ["run", "status", "best", "test", "min", "GiB", "started", "commit"]
    assert order(out) == ["cifar/version_1", "cifar_vgg/version_0", "cifar/version_0", "night/forecast/version_12"]
    cells = next(line for line in out.splitlines() if line.startswith("cifar/version_1 ")).split()
    assert cells[1:8] == ["finished", "val/acc", "0.9", "test/acc", "0.88", "1.5", "1.25"]
    assert cells[-1] == "1234567*"
    assert "cifar_vgg/version_0: RuntimeError: it broke" in out
    assert "val/acc 0.99 on generated data" in out
    assert "on generated data" not in runs("cifar")
    assert "*" not in runs("night")
    write_run(root, "iou/version_0", best=0.25, monitor="val/iou[cat]", test={"test/iou[/dog]": 0.75, "test/x": 2.5})
    assert "val/iou[cat] 0.25  test/iou[/dog] 0.75" in runs("iou"), "names are no markup"
    assert "test/x 2.5  test/iou[/dog] 0.75" in runs("iou", "--sort", "test/x"), "what is sorted by is shown"


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--sort", "val/acc"],
         ["cifar_vgg/version_0", "cifar/version_1", "cifar/version_0", "night/forecast/version_12"]),
        (["cifar", "--sort", "test/loss"], ["cifar/version_1", "cifar/version_0"]),
    ],
)  # fmt: skip
def test_filters_and_order(root, runs, arguments, left):
    assert order(runs(*arguments)) == left


def test_json_holds_all_that_is_known(root, runs):
    [row] = json.loads(runs("--json", "cifar/version_1"))
    assert (row["run"], row["status"], row["best"]["value"]) == ("cifar/version_1", "finished", 0.9)
    assert (row["seconds"], row["commit"], row["dirty"]) == (90.0, COMMIT, True)


def test_a_group_is_one_row_and_its_runs_are_shown_where_it_is_named(root, runs):
    write_group(root, "cifar/seeds_0", [0.8, 0.9], hours_ago=3)
    out = runs("cifar")
    assert order(out) == ["cifar/version_1", "cifar/seeds_0", "cifar/version_0"]
    assert "cifar/seeds_0    2 of 3, finished  val/acc 0.85 ± 0.05" in out
    members = ["cifar/seeds_0/seed_1/version_0", "cifar/seeds_0/seed_0/version_0"]
    assert order(runs("cifar/seeds_0")) == members
    assert order(runs("cifar/seeds_0/seed_0")) == members[1:]
    assert order(runs("cifar", "--sort", "val/acc")) == ["cifar/version_1", "cifar/seeds_0", "cifar/version_0"]


def test_without_runs_there_is_a_friendly_line(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    assert runs() == "There are no runs in lightning_logs\n"
    assert runs("--json") == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nothing"], "; the experiments in lightning_logs are cifar, cifar_vgg, night/forecast"),
        (["--sort", "val/ac"], "no run has a metric 'val/ac'; did you mean 'val/acc'?"),
    ],
)
def test_what_is_not_there(root, arguments, line):
    with pytest.raises(UserError) as refused:
        table.main(arguments)
    assert line in str(refused.value)


def test_the_light_verbs_import_neither_torch_nor_lightning(root):
    write_group(root, "cifar/seeds_0", [0.8, 0.9])
    code = (
        "import sys; from litlab.util.team import use_package; use_package('auks')\n"
        "from litlab.runs import compare, reproduce, table\n"
        "codes = [table.main([]), compare.main(['cifar/seeds_0', 'cifar_vgg']), reproduce.main(['cifar'])]\n"
        "print(codes, [name for name in ('torch', 'lightning', 'jsonargparse', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0] []", done.stderr
