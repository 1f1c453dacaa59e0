"""The commit, and uncommitted changes that `git apply` brings back."""

import subprocess

from litlab.runs.provenance import work_tree


def test_changes_and_new_sources_come_back_by_git_apply(repository):
    root, git = repository
    (root / "src" / "model.py").write_text("width = 2\npassword = 'as it is'\n")
    (root / "src" / "new.py").write_text("depth = 3\n")
    (root / "notes.txt").write_text("mine\n")
    (root / "data").mkdir()
    (root / "data" / "ignored.yaml").touch()
    before = git("status", "--porcelain")
    _, diff = work_tree(root / "src")
    assert git("status", "--porcelain") == before  # the index is as it was
    git("stash", "--include-untracked")
    assert not work_tree(root)[1]
    subprocess.run(["git", "apply", "-"], cwd=root, input=diff, text=True, check=True)
    assert (root / "src" / "model.py").read_text() == "width = 2\npassword = 'as it is'\n"
    assert (root / "src" / "new.py").read_text() == "depth = 3\n"
    assert not (root / "notes.txt").exists()
    for name, value in {"diff.noprefix": "true", "color.ui": "always", "core.abbrev": "20"}.items():
        git("config", name, value)
    assert work_tree(root)[1] == diff  # whatever the user has set


def test_code_without_a_commit(repository, tmp_path, monkeypatch):
    root, git = repository
    assert work_tree(root)[0] == git("rev-parse", "HEAD")
    installed = root / "data" / "site-packages"  # in a repository that does not hold it
    installed.mkdir(parents=True)
    (installed / "model.py").touch()
    assert work_tree(tmp_path) == work_tree(installed) == (None, "")
    monkeypatch.setenv("PATH", "")
    assert work_tree(root) == (None, "")
