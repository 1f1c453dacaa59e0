"""`python -m auks runs`."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from litlab.runs import compare, run_table
from litlab.runs.find import find_run
from tests.litlab.runs.make import COMMIT, write, write_run


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
    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_table.main(list(arguments))
        return (code, *capsys.readouterr())

    return run


def order(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines() if "/version_" in line.split(" ")[0] and "failed:" not in line]


def test_the_newest_first_with_its_results(root, runs):
    code, out, err = runs()
    assert (code, err) == (0, "")
    assert out.split("\n")[0].split() == ["run", "status", "best", "test", "min", "GiB", "when", "commit"]
    assert order(out) == ["cifar/version_1", "cifar_vgg/version_0", "cifar/version_0", "night/forecast/version_12"]
    line = next(line for line in out.splitlines() if line.startswith("cifar/version_1 "))
    assert line.split() == [
        "cifar/version_1", "finished", "val/acc", "0.9", "test/acc", "0.88", "1.5", "1.2", "2", "h", "ago", "1234567*",
    ]  # fmt: skip
    assert "cifar_vgg/version_0 failed: RuntimeError: it broke" in out


def test_generated_data_and_changed_code_are_marked(root, runs):
    _, out, _ = runs()
    assert "val/acc ~0.99" in out
    assert "~ on generated data" in out
    assert "~" not in runs("cifar")[1]
    assert "\n* the code had changes that were not committed.\n" in out
    assert "*" not in runs("night")[1]


def test_names_of_metrics_are_no_markup(root, runs):
    write_run(root, "iou/version_0", best=0.25, monitor="val/iou[cat]", test={"test/iou[/dog]": 0.75})
    out = runs("iou", "--sort", "test/iou[/dog]")[1]
    assert "val/iou[cat] 0.25  test/iou[/dog] 0.75" in out


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["cifar"], ["cifar/version_1", "cifar/version_0"]),
        (["lightning_logs/cifar/"], ["cifar/version_1", "cifar/version_0"]),
        (["night", "cifar_vgg"], ["cifar_vgg/version_0", "night/forecast/version_12"]),
        (["--status", "failed"], ["cifar_vgg/version_0"]),
        (["--limit", "2"], ["cifar/version_1", "cifar_vgg/version_0"]),
        (["--sort", "val/acc", "--limit", "2"], ["cifar_vgg/version_0", "cifar/version_1"]),
        (["cifar", "--sort", "test/loss"], ["cifar/version_1", "cifar/version_0"]),
        (["cifar", "--sort", "test/acc"], ["cifar/version_1", "cifar/version_0"]),
        (["--sort", "val/mse", "--limit", "1"], ["night/forecast/version_12"]),
    ],
)
def test_filters_and_order(root, runs, arguments, left):
    code, out, _ = runs(*arguments)
    assert (code, order(out)) == (0, left)


def test_a_metric_that_has_no_column_gets_one(root, runs):
    _, out, _ = runs("cifar", "--sort", "test/loss")
    assert "test/loss" in out.splitlines()[0]
    assert " 2.5 " in out.splitlines()[1]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_a_narrow_terminal_shows_all_values(root, runs, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = runs()
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    for value in ("0.88", "0.9", "~0.99", "0.37", "1.5", "1.2", "1234567*"):
        assert value in out.split()


def test_json_holds_all_that_is_known(root, runs):
    code, out, _ = runs("--json", "cifar", "--limit", "1")
    [row] = json.loads(out)
    assert code == 0
    assert (row["run"], row["experiment"], row["status"]) == ("cifar/version_1", "cifar", "finished")
    assert row["best"]["value"] == 0.9
    assert row["test"] == {"test/loss": 2.5, "test/acc": 0.88}
    assert (row["seconds"], row["peak_memory_gib"], row["commit"], row["dirty"]) == (90.0, 1.25, COMMIT, True)
    assert row["problems"] == []


def test_runs_without_records_are_listed(root, runs):
    old = root / "cifar" / "version_7"
    (old / "checkpoints").mkdir(parents=True)
    (old / "config.yaml").touch()
    os.utime(old / "config.yaml", (1.7e9, 1.7e9))
    _, out, _ = runs()
    line = next(line for line in out.splitlines() if line.startswith("cifar/version_7"))
    assert line.split() == ["cifar/version_7", "unknown", "-", "-", "-", "-", "2023-11-14", "-"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.json", '{"val": '),
        ("metrics.json", '{"best": 3}'),
        ("metrics.json", '{"seconds": "long"}'),
        ("metrics.json", '{"best": {"value": 3}}'),
        ("metrics.json", '{"best": {"monitor": "x", "mode": "max", "value": "high"}}'),
        ("metrics.json", '{"test": {"a": "b"}}'),
        ("metrics.json", "[" * 100_000),
        ("status.json", ""),
        ("status.json", '{"status": 5}'),
        ("status.json", '{"status": "running", "pid": 1e999}'),
        ("status.json", '{"started": []}'),
        ("status.json", r'{"reason": "\ud83d"}'),
        ("status.json", None),
        ("provenance.json", "[]"),
        ("provenance.json", '{"commit": 1}'),
        ("provenance.json", '{"data": []}'),
        ("provenance.json", '{"hardware": {"ranks": "two"}}'),
        ("provenance.json", '{"continued": [{"started": 3}]}'),
        ("provenance.json", '{"command": [1]}'),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(root, runs, file, content, capsys):
    path = root / "cifar" / "version_1" / file
    path.unlink()
    if content is None:
        os.mkfifo(path)  # nobody will ever write into it
    else:
        path.write_text(content)
    code, out, _ = runs()
    assert code == 0
    assert sorted(order(out)) == [
        "cifar/version_0",
        "cifar/version_1",
        "cifar_vgg/version_0",
        "night/forecast/version_12",
    ]
    [warning] = [line for line in out.splitlines() if line.startswith("warning:")]
    assert f"cifar/version_1/{file} is damaged" in warning
    assert len(json.loads(runs("--json")[1])) == 4
    assert find_run("best").name == ("cifar/version_0" if file == "metrics.json" else "cifar/version_1")
    assert find_run("last").path.name in ("version_0", "version_1")
    capsys.readouterr()
    assert compare.main(["cifar/version_0", "cifar/version_1"]) == 0
    assert capsys.readouterr().out.count("warning:") == (file != "status.json")


@pytest.mark.parametrize("content", ["a: &a [*a]", "a: 2020-99-99", "\x00", "- 1", "", "{" * 5000])
def test_a_damaged_config_is_named(root, content, capsys):
    (root / "cifar/version_1/config.yaml").write_text(content)
    assert compare.main(["cifar/version_0", "cifar/version_1"]) == 0
    [warning] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning:")]
    assert "version_1/config.yaml is damaged" in warning


def test_links_that_lead_back_are_followed_once(root, runs):
    (root / "cifar" / "again").symlink_to(root)
    assert len(order(runs()[1])) == 4


def test_runs_that_were_killed_or_run_elsewhere(root, runs):
    for name, state in {"cifar/version_0": {"pid": 2**22 + 1}, "cifar/version_1": {"host": "another"}}.items():
        file = root / name / "status.json"
        write(file, **{**json.loads(file.read_text()), "status": "running", **state})
    states = {row["run"]: row["status"] for row in json.loads(runs("--json")[1])}
    assert states["cifar/version_0"] == "killed"
    assert states["cifar/version_1"] == "running?"
    assert order(runs("--status", "running")[1]) == ["cifar/version_1"]


def test_without_runs_there_is_a_friendly_line(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    assert runs() == (0, "There are no runs in lightning_logs yet.\n", "")
    assert runs("--json") == (0, "[]\n", "")
    write_run(tmp_path / "lightning_logs", "cifar/version_0")
    assert runs("--status", "killed") == (0, "There are no such runs in lightning_logs.\n", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cifra"], "lightning_logs has no experiment 'cifra'; did you mean 'cifar'?"),
        (["--sort", "val/ac"], "no run has a metric 'val/ac'; did you mean 'val/acc'?"),
        (["--stat", "failed"], "there is no option '--stat'; did you mean '--status'?"),
        (["--status", "bad"], "invalid choice: 'bad'"),
        (["--limit", "0"], "'0' is not valid; it must be a whole number of at least 1"),
    ],
)
def test_errors_are_one_line(root, runs, arguments, line):
    code, out, err = runs(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: runs: ")
    assert line in err
    assert err.count("\n") == 1


def test_when():
    now = datetime(2026, 5, 20, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    ago = {10: "just now", 130: "2 min ago", 7300: "2 h ago", 90000: "19 May 11:00", 3e7: "2025-06-07"}
    assert {seconds: run_table.when(now - timedelta(seconds=seconds), now) for seconds in ago} == ago


def test_the_light_verbs_import_neither_torch_nor_lightning(root):
    code = (
        "import sys; from litlab.util.team import use_package; use_package('auks')\n"
        "from litlab.runs import compare, reproduce, run_table\n"
        "codes = [run_table.main([]), compare.main(['cifar', 'cifar_vgg']), reproduce.main(['cifar', '--print'])]\n"
        "print(codes, [name for name in ('torch', 'lightning', 'jsonargparse', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[0, 0, 2] []", done.stderr  # 2: the commit to reproduce is made up


def test_the_reader_of_a_pipe_may_leave(root):
    command = [sys.executable, "-m", "auks", "runs", "--json"]
    for number in range(2, 40):
        write_run(root, f"cifar/version_{number}")  # more than a pipe holds
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
