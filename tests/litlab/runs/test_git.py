"""The commit, and uncommitted changes that `git apply` brings back."""

import subprocess

from litlab.runs.git import work_tree

from litlab.runs import git as module


def test_a_clean_work_tree(repository):
    root, git = repository
    code = work_tree(root / "src")
    assert code.root == root
    assert code.commit == git("rev-parse", "HEAD")
    assert (code.dirty, code.diff, code.problem) == (False, "", "")


def test_changes_and_new_sources_come_back_by_git_apply(repository):
    root, git = repository
    (root / "src" / "model.py").write_text("width = 2\n")
    (root / "src" / "new.py").write_text("depth = 3\n")
    (root / "notes.txt").write_text("mine\n")
    (root / "data").mkdir()
    (root / "data" / "ignored.yaml").touch()
    before = git("status", "--porcelain")
    code = work_tree(root / "src")
    assert git("status", "--porcelain") == before  # the index is as it was
    assert code.dirty
    assert code.complete
    assert code.untracked == ("notes.txt",)
    git("stash", "--include-untracked")
    assert not work_tree(root).dirty
    subprocess.run(["git", "apply", "-"], cwd=root, input=code.diff, text=True, check=True)
    assert (root / "src" / "model.py").read_text() == "width = 2\n"
    assert (root / "src" / "new.py").read_text() == "depth = 3\n"
    assert work_tree(root).digest == code.digest


def test_the_settings_of_the_user_change_nothing(repository):
    root, git = repository
    (root / "src" / "model.py").write_text("width = 2\n")
    digest = work_tree(root).digest
    for name, value in {
        "diff.noprefix": "true",
        "color.ui": "always",
        "diff.context": "0",
        "core.abbrev": "20",
    }.items():
        git("config", name, value)
    assert work_tree(root).digest == digest


def test_secrets_are_masked_and_that_is_told(repository):
    root, _ = repository
    (root / "src" / "model.py").write_text("password = 'hunter2x'\n")
    code = work_tree(root)
    assert "hunter2x" not in code.diff
    assert not code.complete


def test_a_diff_without_measure_is_cut_and_that_is_told(repository, monkeypatch):
    root, _ = repository
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    (root / "src" / "model.py").write_text("width = 1 + 1\n" * 100)
    code = work_tree(root)
    assert len(code.diff) == 100
    assert not code.complete


def test_code_outside_of_a_repository_has_no_commit(tmp_path):
    code = work_tree(tmp_path)
    assert code.commit is None
    assert "not a git repository" in code.problem


def test_code_installed_into_a_repository_that_does_not_hold_it(repository):
    root, _ = repository
    (root / "data" / "site-packages").mkdir(parents=True)
    (root / "data" / "site-packages" / "model.py").touch()
    assert "not under version control" in work_tree(root / "data" / "site-packages").problem


def test_a_machine_without_git(repository, monkeypatch):
    root, _ = repository
    monkeypatch.setenv("PATH", "")
    assert "git can't be run" in work_tree(root).problem
