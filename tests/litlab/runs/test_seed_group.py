"""Groups of seeds in the ledger: found by their name, one row in `runs`, one column in `compare`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from litlab.runs.seed_group import SeedGroup, experiment_of, group_of, how_to_continue, without_seed

from litlab.errors import UserError
from litlab.runs import compare, run_table
from litlab.runs.find import find_run
from tests.litlab.runs.conftest import held_by_another
from tests.litlab.runs.make import write, write_run


def write_group(root: Path, name: str, best: list[float], hours_ago: float = 3, **settings) -> SeedGroup:
    """A group whose seeds were run one after another, an hour each."""
    group = SeedGroup(root / name)
    for seed, value in enumerate(best):
        test = {"test/loss": 2 - value, "test/acc": value - 0.01}
        run = f"{name}/seed_{seed}/version_0"
        write_run(root, run, best=value, test=test, hours_ago=hours_ago - seed, seed=seed, **settings)
    runs = {str(seed): f"seed_{seed}/version_0" for seed in range(len(best))}
    command = ["python", "-m", "auks", "fit", "--config", "my config.yaml", "--seeds", "0,1,2"]
    write(group.file, command=command, seeds=[0, 1, 2], runs=runs, metrics={}, config={})
    return group


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two groups of an experiment and a run of its own, and another experiment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    root = Path("lightning_logs")
    write_run(root, "other/version_0", best=0.1, hours_ago=0.5)
    write_run(root, "cifar/version_0", best=0.7, hours_ago=9)
    write_group(root, "cifar/seeds_0", [0.8, 0.9, 0.88], hours_ago=30)
    write_group(root, "cifar/seeds_1", [0.85, 0.86], width=32)
    return root


def shown(capsys, *arguments: str) -> list[list[str]]:
    assert run_table.main(list(arguments)) == 0
    return [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]


def cells(row: list[str]) -> list[str]:
    return [cell.strip() for cell in row if cell.strip()]


def test_a_group_is_one_row(root, capsys):
    rows = shown(capsys)
    assert [row[0] for row in rows] == ["other/version_0", "cifar/seeds_1", "cifar/version_0", "cifar/seeds_0"]
    assert cells(rows[3])[:5] == ["cifar/seeds_0", "3 of 3", "val/acc 0.86 ± 0.053", "test/acc 0.85 ± 0.053", "4.5"]
    assert cells(rows[1])[:3] == ["cifar/seeds_1", "2 of 3, interrupted", "val/acc 0.855 ± 0.0071"]
    assert cells(rows[3])[-1] == "1234567"


def test_its_runs_are_shown_where_it_is_named(root, capsys):
    runs = [f"cifar/seeds_0/seed_{seed}/version_0" for seed in (2, 1, 0)]
    assert [row[0] for row in shown(capsys, "cifar/seeds_0")] == runs
    assert [row[0] for row in shown(capsys, "lightning_logs/cifar/seeds_0/seed_1/")] == runs[1:2]
    assert [row[0] for row in shown(capsys, "cifar")] == ["cifar/seeds_1", "cifar/version_0", "cifar/seeds_0"]


def test_filters_and_order(root, capsys):
    assert [row[0] for row in shown(capsys, "--sort", "val/acc", "--limit", "2")] == ["cifar/seeds_0", "cifar/seeds_1"]
    assert [row[0] for row in shown(capsys, "--status", "interrupted")] == ["cifar/seeds_1"]
    assert "1.14 ± 0.053" in shown(capsys, "cifar", "--sort", "test/loss")[0]


def test_json_has_the_seeds(root, capsys):
    run_table.main(["cifar", "--json"])
    first, plain, second = json.loads(capsys.readouterr().out)
    assert plain["seeds"] is None
    assert first["seeds"]["asked"] == [0, 1, 2]
    assert first["seeds"]["finished"] == [0, 1]
    assert first["seeds"]["runs"] == {"0": "cifar/seeds_1/seed_0/version_0", "1": "cifar/seeds_1/seed_1/version_0"}
    assert second["val"]["val/acc"] == second["best"]["value"] == pytest.approx(0.86)
    assert second["seeds"]["deviation"]["val/acc"] == pytest.approx(0.0529, abs=1e-4)
    assert (second["status"], second["experiment"], second["seconds"]) == ("finished", "cifar", 270.0)
    assert set(first) == set(plain)


def test_a_training_metric_is_no_result_of_the_test(root, capsys):
    for seed in range(2):
        write_run(root, f"plain/seeds_0/seed_{seed}/version_0", monitor="train/loss", test={})
    write(root / "plain/seeds_0/seeds.json", seeds=[0, 1], runs={str(s): f"seed_{s}/version_0" for s in range(2)})
    assert cells(shown(capsys, "plain")[0])[2:4] == ["train/loss 0.8 ± 0", "-"]


def test_a_seed_that_failed_or_runs(root, capsys):
    status = root / "cifar/seeds_0/seed_1/version_0/status.json"
    write(status, **{**json.loads(status.read_text()), "status": "failed", "reason": "RuntimeError: it broke"})
    rows = shown(capsys, "cifar")
    assert cells(rows[2])[:3] == ["cifar/seeds_0", "2 of 3, failed", "val/acc 0.84 ± 0.057"]
    assert ["cifar/seeds_0 failed: seed 1: RuntimeError: it broke"] in rows
    with held_by_another(root / "cifar/seeds_0"):
        assert cells(shown(capsys, "cifar")[2])[1] == "2 of 3, running"


@pytest.mark.parametrize("content", ["{", '{"runs": 3}', '{"runs": {"0": 3}}', '{"seeds": ["a"]}', "[]"])
def test_a_damaged_file_is_named(root, capsys, content):
    (root / "cifar/seeds_0/seeds.json").write_text(content)
    rows = shown(capsys)
    assert "cifar/seeds_0" in [row[0] for row in rows]
    [warning] = [row[0] for row in rows if row[0].startswith("warning:")]
    assert "cifar/seeds_0/seeds.json is damaged" in warning
    assert compare.main(["cifar/seeds_0", "cifar/seeds_1"]) == 2
    assert "seeds.json is damaged" in capsys.readouterr().err


def test_odd_entries_are_not_runs(root):
    group = SeedGroup(root / "cifar/seeds_0")
    write(group.file, runs={"x": "seed_0/version_0", "1": "seed_1/version_0", "2": "seed_2/version_7"})
    assert list(group.runs()) == [1]


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("last", "other/version_0"),
        ("cifar", "cifar/seeds_1/seed_1/version_0"),
        ("cifar/seeds_0", "cifar/seeds_0/seed_2/version_0"),
        ("lightning_logs/cifar/seeds_0/seed_1", "cifar/seeds_0/seed_1/version_0"),
        ("cifar/seeds_0/seed_1/version_0", "cifar/seeds_0/seed_1/version_0"),
    ],
)
def test_runs_are_found(root, text, run):
    assert find_run(text).name == run


def test_the_best_run_of_the_experiment_may_be_a_seed(root):
    write_run(root, "cifar/version_1", best=0.3, hours_ago=0.1)
    assert find_run("best").name == "cifar/seeds_0/seed_1/version_0"


def test_the_folder_of_experiments_lists_them_without_seeds(root):
    with pytest.raises(UserError, match=r"experiments in lightning_logs are cifar, other;"):
        find_run("lightning_logs")


def test_an_experiment_that_is_not_there_names_those_that_are(root, capsys):
    assert run_table.main(["nothing"]) == 2
    assert capsys.readouterr().err.endswith("has no experiment 'nothing': there are cifar, other.\n")


def test_what_a_run_belongs_to(root):
    seed, plain = find_run("cifar/seeds_0/seed_1"), find_run("cifar/version_0")
    assert group_of(seed) == SeedGroup(root / "cifar/seeds_0")
    assert group_of(plain) is None
    assert experiment_of(seed) == experiment_of(plain) == root / "cifar"
    assert without_seed("a/cifar/seeds_0/seed_12") == without_seed("a/cifar") == "a/cifar"


def test_a_seed_that_is_resumed_alone_says_what_continues_all(root):
    run = find_run("cifar/seeds_1/seed_1")
    line = how_to_continue(run)
    assert line.startswith("cifar/seeds_1/seed_1/version_0 is one seed of cifar/seeds_1.")
    assert line.endswith("python -m auks fit --config 'my config.yaml' --seeds 0,1,2")
    with held_by_another(root / "cifar/seeds_1"):
        assert how_to_continue(run) == ""
    assert how_to_continue(find_run("other")) == ""


def test_groups_side_by_side(root, capsys):
    assert compare.main(["cifar/seeds_0", "cifar/seeds_1", "cifar/version_0"]) == 0
    lines = [cells(line.split("  ")) for line in capsys.readouterr().out.splitlines() if line]
    rows = {line[0]: line[1:] for line in lines}
    assert rows["model.width"] == ["16", "32", "16"]
    assert rows["val/acc"] == ["0.86 ± 0.053", "0.855 ± 0.0071", "0.7"]
    assert rows["seed"] == ["varies", "varies", "0"]
    assert rows["minutes"] == ["4.50", "3.00", "1.50"]


def test_a_group_and_one_of_its_runs(root, capsys):
    assert compare.main(["cifar/seeds_0", "cifar/seeds_0"]) == 2
    assert "are the same" in capsys.readouterr().err


def test_groups_are_shown_without_torch(root):
    code = (
        "import sys; from litlab.util.team import use_package; use_package('auks')\n"
        "from litlab.runs import compare, run_table\n"
        "print(run_table.main([]), compare.main(['cifar/seeds_0', 'cifar/seeds_1']))\n"
        "print([name for name in ('torch', 'lightning', 'scipy', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-2:] == ["0 0", "[]"], done.stderr
