"""``remove``: the tree is as it was before ``new``; what something else uses stays, and nothing goes without a word."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from litlab.commands.scaffold.new import KINDS
from tests.litlab.commands.scaffold.tiny_project import contents
from tests.litlab.commands.scaffold.tiny_project import project as project

FILES = ["configs/mine.yaml", "src/bog/data/__init__.py", "src/bog/data/mine.py", "src/bog/networks/__init__.py",
         "src/bog/networks/mine.py", "tests/bog/short/MineData.py", "tests/bog/short/__init__.py",
         "tests/bog/test_mine.py"]  # fmt: skip


@pytest.fixture(scope="module")
def team() -> str:
    return "bog"


@pytest.fixture
def mine(run, project) -> Path:
    """A project with an experiment like cifar."""
    assert run("new", "mine", "--like", "cifar").code == 0
    return project


@pytest.mark.parametrize("flags", [(), ("--model-only",)], ids=["own", "only"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_is_as_it_was(run, project, kind, flags):
    before = contents(project)
    assert run("new", "mine", "--like", kind, *flags).code == 0
    assert contents(project) != before
    done = run("remove", "mine", "--yes")
    assert (done.code, done.err) == (0, "")
    assert contents(project) == before


def test_others_keep_their_files(run, mine):
    before = contents(mine)
    for name, kind in (("mine_two", "cifar"), ("other", "text")):
        assert run("new", name, "--like", kind).code == 0
    for name in ("other", "mine_two"):
        assert run("remove", name, "--yes").code == 0
    assert contents(mine) == before
    assert run("new", "mine_two", "--like", "cifar").code == 0
    assert run("remove", "mine", "--yes").code == 0
    assert (mine / "src/bog/networks/mine_two.py").is_file()
    assert (mine / "src/bog/networks/__init__.py").is_file()


def test_all_of_it_goes_and_runs_stay(run, mine):
    """A sweep file, parts of the network in a file of their own, a second test; not what others may need, too."""
    run_of_it = mine / "lightning_logs/mine/version_0/config.yaml"
    for path, text in (
        (mine / "configs/sweeps/mine.yaml", "base: ../mine.yaml\nspace: {model.network.width: {low: 8, high: 64}}\n"),
        (mine / "src/bog/networks/mine_blocks.py", "from bog.networks._mine_norm import Block as Block\n"),
        (mine / "src/bog/networks/_mine_norm.py", "from bog.networks.blocks import Block as Block\n"),
        (mine / "src/bog/networks/blocks.py", "class Block:\n    pass\n"),
        (mine / "tests/bog/networks/test_mine.py", "from bog.networks.mine import Mine as Mine\n"),
        (mine / "tests/bog/test_two_blocks.py", "from bog.networks import mine_blocks as mine_blocks\n"),
        (mine / "README.md", "[mine](configs/mine.yaml)\n"),
        (mine / "docs/own/nets.md", "`configs/mine.yaml`\n"),
        (run_of_it, "experiment: mine\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    network = mine / "src/bog/networks/mine.py"
    network.write_text(network.read_text() + "\nfrom .mine_blocks import Block as Block  # noqa: E402\n")
    done = run("remove", "mine", "--yes")
    assert done.code == 0, done.err
    left = {name for name, content in contents(mine).items() if content is not None}
    assert not [name for name in left if "mine" in name and not name.startswith("lightning_logs")]
    assert not (mine / "tests/bog/test_two_blocks.py").exists()
    assert {"src/bog/networks/blocks.py", "src/bog/networks/__init__.py", "README.md"} <= left
    assert run_of_it.is_file()
    assert "These stay, though it uses them: src/bog/networks/blocks.py\n" in done.out
    assert "These seem to mention it: README.md, docs/own/nets.md\n" in done.out
    assert "Runs in lightning_logs/ stay" in done.out


@pytest.mark.parametrize(
    ("file", "text", "used"),
    [
        ("configs/wide.yaml", "base: mine.yaml\n", "configs/mine.yaml"),
        ("configs/sweeps/all.yaml", "base: [../mine.yaml]\n", "configs/mine.yaml"),
        ("configs/other.yaml", "model: {network: bog.networks.mine.Mine}\n", "src/bog/networks/mine.py"),
        ("configs/other.yaml", "data: {class_path: MineData}\n", "src/bog/data/mine.py"),
        ("configs/with/mined.yaml", "data: {class_path: bog.data.mine.MineData}\n", "src/bog/data/mine.py"),
        ("src/bog/networks/other.py", "from bog.networks.mine import Mine\n", "src/bog/networks/mine.py"),
        ("src/bog/networks/other.py", "from bog.networks import mine\n", "src/bog/networks/mine.py"),
        ("src/bog/networks/other.py", "from .mine import Mine\n", "src/bog/networks/mine.py"),
        ("src/bog/networks/other.py", "from ..data import mine\n", "src/bog/data/mine.py"),
        ("src/bog/networks/other.py", "import bog.networks.mine as net\n", "src/bog/networks/mine.py"),
        ("src/bog/networks/__init__.py", "from .mine import Mine\n", "src/bog/networks/mine.py"),
        ("tests/bog/test_all.py", "FILES = ['configs/mine.yaml', 'configs/other.yaml']\n", "configs/mine.yaml"),
        ("tests/bog/test_one.py", "FILE = 'mine.yaml'\n", "configs/mine.yaml"),
        ("tests/bog/test_all.py", "FLAG = '--data=MineData'\nfrom bog import other\n", "src/bog/data/mine.py"),
        ("tests/bog/short/OtherData.py", "from bog import other\nfrom tests.bog.short import MineData\n",
         "tests/bog/short/MineData.py"),
        ("benchmarks/speed.py", "from bog.networks.mine import Mine\n", "src/bog/networks/mine.py"),
        ("benchmarks/speed.py", "FLAG = f'--config={CONFIGS}/mine.yaml'\n", "configs/mine.yaml"),
    ],
)  # fmt: skip
def test_what_something_else_uses_is_kept(run, mine, file, text, used):
    for name in ("configs/other.yaml", "src/bog/other.py"):
        (mine / name).touch()
    (mine / "configs/other.yaml").write_text("experiment: other\n")
    (mine / file).parent.mkdir(exist_ok=True)
    (mine / file).write_text(text)
    before = contents(mine)
    done = run("remove", "mine", "--yes")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: remove: {used} is used by {file}; change that first, or delete by hand, as docs/experiments.md, "
        "'Removing an experiment', says\n"
    )
    assert contents(mine) == before


def test_a_word_alone_is_no_use(run, mine):
    """A file with one stays, and is listed where the word may be a class, or the name of a config."""
    words = '"""Mine, bog.networks.mine and mine.yaml."""\nTITLE, NAME = "# Mine\\n", "mine"  # Mine\n'
    before = contents(mine)
    for name, text in (("no", ""), ("class", 'CLASS = "Mine"\n'), ("config", 'FILE = f"{NAME}.yaml"\n')):
        (mine / f"tests/bog/test_{name}.py").write_text(words + text)
    done = run("remove", "mine", "--yes")
    assert done.code == 0, done.err
    assert "These seem to mention it: tests/bog/test_class.py, tests/bog/test_config.py\n" in done.out
    assert before.keys() - contents(mine).keys() >= set(FILES)
    assert all((mine / f"tests/bog/test_{name}.py").exists() for name in ("no", "class", "config"))


def test_a_file_that_cant_be_read_might_use_anything(run, mine):
    (mine / "tests/bog/test_broken.py").write_text("def test(:\n")
    before = contents(mine)
    done = run("remove", "mine", "--yes")
    assert done.code == 2
    assert done.err.startswith("error: tests/bog/test_broken.py: it can't be read, so what it uses is not known (")
    assert contents(mine) == before


def test_without_a_terminal_nothing_is_deleted(run, mine, monkeypatch):
    before = contents(mine)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        done = run("remove", "mine")
    assert (done.code, done.err) == (
        2, "error: remove: nothing was deleted, as there is no terminal to ask on; add --yes\n"
    )  # fmt: skip
    assert [line.split()[0] for line in done.out.splitlines() if line.startswith("  ")] == FILES
    assert contents(mine) == before


@pytest.mark.parametrize(("answer", "deleted"), [(b"y\n", True), (b"\n", False), (b"no\n", False), (b"\x04", False)])
def test_a_terminal_is_asked(mine, answer, deleted):
    before = contents(mine)
    terminal, its_side = os.openpty()
    os.write(terminal, answer)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(mine / "src"), os.environ["PYTHONPATH"]])}
    command = [sys.executable, "-m", "bog", "remove", "mine"]
    code = subprocess.run(command, cwd=mine, env=variables, stdin=its_side, stdout=its_side, stderr=its_side).returncode
    printed = os.read(terminal, 100_000).decode()
    os.close(terminal)
    os.close(its_side)
    assert code == 0, printed
    assert "Delete 8 files, 8 of them for good? [y/N]" in printed
    assert ("Deleted 8 files." if deleted else "Nothing was deleted.") in printed
    assert (contents(mine) == before) != deleted


def test_it_says_what_git_cant_bring_back(run, mine):
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *arguments], cwd=mine, check=True)

    def add(file: str, text: str) -> None:
        with (mine / file).open("a") as stream:
            stream.write(text)

    add("src/bog/data/mine.py", "from bog.networks import mine_blocks\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    add("configs/mine.yaml", "# better\n")
    add("tests/bog/test_mine.py", "# more\n")
    git("add", "tests")
    add("src/bog/networks/mine_blocks.py", "")
    done = run("remove", "mine", "--yes")
    assert done.code == 0, done.err
    said = dict(line.split(maxsplit=1) for line in done.out.splitlines() if line.startswith("  ") and " " in line[3:])
    assert said == {
        "configs/mine.yaml": "changes are not committed",
        "src/bog/networks/mine_blocks.py": "not in git",
        "tests/bog/test_mine.py": "changes are not committed",
    }


def test_all_files_are_deleted_or_none(run, mine, monkeypatch):
    before = contents(mine)
    rename = Path.rename

    def fail(self, target):
        if self.name == "test_mine.py":
            raise PermissionError(13, "Permission denied", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)  # no folder is read-only for root
    done = run("remove", "mine", "--yes")
    says = "remove: tests/bog/test_mine.py: Permission denied; nothing was deleted"
    assert (done.code, done.err) == (2, f"error: {says}\n")
    assert contents(mine) == before


def test_the_folder_for_what_is_to_go_cant_be_made(run, mine, monkeypatch):
    before = contents(mine)

    def fail(prefix, dir):
        raise PermissionError(13, "Permission denied", f"{dir}/{prefix}x")

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    done = run("remove", "mine", "--yes")
    assert (done.code, done.err) == (2, "error: remove: ./.removed-x: Permission denied; nothing was deleted\n")
    assert contents(mine) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mien"], "remove: there is no experiment 'mien' in configs/; did you mean 'mine'?"),
        (["configs/mine.yaml"], "remove: there is no experiment 'configs/mine.yaml' in configs/; did you mean 'mine'?"),
        (["with/smoke"], "remove: there is no experiment 'with/smoke' in configs/"),
        (["../mine"], "remove: there is no experiment '../mine' in configs/; did you mean 'mine'?"),
        ([], "remove: the following arguments are required: NAME"),
    ],
)
def test_there_is_no_such_experiment(run, mine, arguments, says):
    before = contents(mine)
    done = run("remove", *arguments)
    assert (done.code, done.err) == (2, f"error: {says}\n")
    assert contents(mine) == before
