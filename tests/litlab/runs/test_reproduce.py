"""`python -m auks reproduce`."""

import contextlib
import os
import shlex
import subprocess
import sys

import pytest
import yaml
from litlab.runs.git import work_tree

from litlab.runs import reproduce
from litlab.runs.folder import read_json
from litlab.runs.provenance import describe_code, versions
from tests.litlab.runs.make import write, write_run

FIT = ["-m", "auks", "fit", "--config", "lightning_logs/tiny/version_0/config.yaml"]


class Replaced(Exception):
    """Stands for the process that the fit takes over."""


@pytest.fixture
def made(repository, monkeypatch):
    """Records a run of the repository's code as it is; `reproduce` then looks at that repository."""
    root, git = repository
    (root / ".gitignore").write_text("data/\nlightning_logs/\n")
    git("commit", "--quiet", "--all", "--message", "ignore")
    monkeypatch.chdir(root)
    monkeypatch.setattr(reproduce, "work_tree", lambda: work_tree(root / "src"))

    def record(**further):
        code = work_tree(root / "src")
        provenance = {
            "versions": versions(),
            "directory": str(root),
            **describe_code(code, "uncommitted.diff"),
            **further,
        }
        run = write_run(root / "lightning_logs", "tiny/version_0", **provenance)
        (run.path / "uncommitted.diff").write_text(code.diff)
        return run

    return record


@pytest.fixture
def outcome(monkeypatch, capsys):
    """Runs the verb; what it would have run in its place is the last element."""

    def run(*arguments: str) -> tuple[int, str, str, list[str] | None]:
        replaced: list[list[str]] = []

        def execv(program, command):
            assert (program, command[0]) == (sys.executable, sys.executable)
            replaced.append(command[1:])
            raise Replaced

        monkeypatch.setattr(os, "execv", execv)
        code = 0
        with contextlib.suppress(Replaced):
            code = reproduce.main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err, replaced[0] if replaced else None

    return run


def test_the_same_command_on_the_same_code(made, outcome):
    made()
    code, out, err, command = outcome("tiny")
    assert (code, err, command) == (0, "", FIT)
    assert out == shlex.join(["python", *FIT]) + "\n"


def test_print_runs_nothing(made, outcome):
    made()
    assert outcome("tiny", "--print") == (0, shlex.join(["python", *FIT]) + "\n", "", None)


def test_weights_to_start_from_have_to_be_there(made, outcome, repository):
    run = made()
    run.config.write_text(yaml.safe_dump({**yaml.safe_load(run.config.read_text()), "init_from": "weights.ckpt"}))
    assert "init_from: weights.ckpt is missing" in outcome("tiny")[2]
    (run.path.parents[2] / "weights.ckpt").touch()
    assert outcome("tiny")[3] == FIT


def test_another_commit_says_how_to_get_back(made, outcome, repository):
    root, git = repository
    made()
    commit = git("rev-parse", "HEAD")
    (root / "src" / "model.py").write_text("width = 2\n")
    git("commit", "--quiet", "--all", "--message", "second")
    code, out, err, command = outcome("tiny")
    assert (code, out, command) == (2, "", None)
    assert f"git checkout {commit} and try again" in err
    assert err.count("\n") == 1
    _, printed, _, _ = outcome("tiny", "--print")
    *steps, fit = printed.splitlines()
    for step in steps:
        subprocess.run(step, shell=True, cwd=root, check=True, capture_output=True)
    assert shlex.split(fit)[1:] == outcome("tiny")[3]


def test_uncommitted_changes_come_back_and_those_of_today_are_put_aside(made, outcome, repository):
    root, git = repository
    (root / "src" / "model.py").write_text("width = 7\n")
    (root / "src" / "new.py").write_text("depth = 3\n")
    run = made()
    assert outcome("tiny")[3] == FIT  # still the same
    git("add", ".")
    git("commit", "--quiet", "--message", "second")
    (root / "src" / "model.py").write_text("width = 8\n")
    code, _, err, _ = outcome("tiny")
    assert code == 2
    for step in ("git stash --include-untracked", f"git apply {run.path / 'uncommitted.diff'}"):
        assert step in err
    for step in outcome("tiny", "--print")[1].splitlines()[:-1]:
        identity = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org", "GIT_COMMITTER_NAME": "x",
                    "GIT_COMMITTER_EMAIL": "x@example.org"}  # fmt: skip
        subprocess.run(step, shell=True, cwd=root, check=True, capture_output=True, env={**os.environ, **identity})
    assert (root / "src" / "model.py").read_text() == "width = 7\n"
    assert outcome("tiny")[3] == FIT


def test_other_versions_are_listed_and_tried(made, outcome):
    made(versions={**versions(), "torch": "1.0", "gone": "3.2"})
    _, out, _, command = outcome("tiny")
    assert "note: torch is " in out
    assert "the run used 1.0" in out
    assert "note: gone is not installed here, the run used 3.2." in out
    assert command == FIT
    assert "# torch is" in outcome("tiny", "--print")[1]


def config_with(run, **data):
    config = yaml.safe_load(run.config.read_text())
    run.config.write_text(yaml.safe_dump({**config, "data": {"class_path": "D", "init_args": data}}))


def test_data_that_is_not_there(made, outcome, tmp_path):
    run = made()
    config_with(run, path="photos", cache_dir="not/made/yet", dataset="folder")
    code, _, err, _ = outcome("tiny")
    assert code == 2
    assert "tiny/version_0 can't be reproduced: data.path: photos is missing." in err
    assert "# data.path: photos is missing." in outcome("tiny", "--print")[1]
    config_with(run, path=str(tmp_path), cache_dir="not/made/yet")
    assert outcome("tiny")[3] == FIT


def test_data_that_was_generated_needs_none(made, outcome):
    config_with(made(data={"generated": True}), path="photos")
    assert outcome("tiny")[3] == FIT


IMPOSSIBLE = [
    ({"commit": None, "why_no_commit": "not a git repository"}, "its code is not known (not a git repository)"),
    ({"commit": "e" * 40}, f"its commit {'e' * 40} is not in"),
    ({"commit": "e" * 40, "continued": [{"commit": "d" * 40}]}, "continued on other code"),
    ({"command": ["python", "train.py"]}, "was not made by `python -m auks fit` but by `python train.py`"),
    ({"uncommitted": {"file": "uncommitted.diff", "sha256": "9" * 64, "complete": False}}, "only in part"),
]


@pytest.mark.parametrize(("provenance", "line"), IMPOSSIBLE)
def test_what_can_not_be_reproduced_says_why(made, outcome, provenance, line):
    made(**provenance)
    code, out, err, command = outcome("tiny")
    assert (code, out, command) == (2, "", None)
    assert line in err
    assert err.count("\n") == 1


def test_a_run_that_lacks_a_file_says_which(made, outcome):
    run = made()
    run.config.unlink()
    assert "has no config.yaml" in outcome("tiny")[2]
    run.provenance.unlink()
    assert "has no provenance.json" in outcome("tiny")[2]
    run.provenance.write_text("{")
    assert "provenance.json is damaged" in outcome("tiny")[2]
    assert "there is no run 'tiy'" in outcome("tiy")[2]


def test_code_that_is_not_under_version_control_here(made, outcome, monkeypatch, tmp_path):
    made()
    monkeypatch.setattr(reproduce, "work_tree", lambda: work_tree(tmp_path))
    assert "can't be reproduced here: not a git repository" in outcome("tiny")[2]


def test_continued_on_the_same_code(made, outcome):
    run = made()
    content = read_json(run.provenance)
    write(run.provenance, **content, continued=[{"commit": content["commit"]}])
    assert outcome("tiny")[3] == FIT
