"""``new``: the files that it writes and names, and what it refuses without writing any."""

from pathlib import Path

import pytest

from litlab.commands.scaffold.names import LONGEST
from litlab.commands.scaffold.new import KINDS
from tests.litlab.commands.scaffold.tiny_project import contents
from tests.litlab.commands.scaffold.tiny_project import project as project


@pytest.fixture(scope="module")
def team() -> str:
    return "fen"


def new_files(root: Path, before: dict[str, bytes | None]) -> set[str]:
    after = contents(root)
    assert {name: after[name] for name in before} == before
    return {name for name in after.keys() - before.keys() if after[name] is not None}


def test_it_prints_the_files_and_three_commands(run, project):
    before = contents(project)
    done = run("new", "my_net", "--like", "cifar")
    assert (done.code, done.err) == (0, "")
    files, _, commands = done.out.partition("Run it in seconds, test it, train it:\n")
    assert {line.split()[0] for line in files.splitlines()} == new_files(project, before) == {
        "configs/my_net.yaml", "src/fen/data/__init__.py", "src/fen/data/my_net.py", "src/fen/networks/__init__.py",
        "src/fen/networks/my_net.py", "tests/fen/short/MyNetData.py", "tests/fen/short/__init__.py",
        "tests/fen/test_my_net.py",
    }  # fmt: skip
    assert [line.strip() for line in commands.splitlines()] == [
        "python -m fen fit --config configs/my_net.yaml --config configs/with/smoke.yaml",
        "python -m pytest tests/fen/test_my_net.py",
        "python -m fen fit --config configs/my_net.yaml",
        "The first leaves its run in lightning_logs/smoke/, the last in lightning_logs/my_net/.",
    ]
    assert "class MyNet(nn.Module):" in (project / "src/fen/networks/my_net.py").read_text()
    assert "class MyNetData(ImageData):" in (project / "src/fen/data/my_net.py").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_model_only_writes_no_data(run, project, kind):
    before = contents(project)
    done = run("new", "mine", "--model-only", "--like", kind)
    assert done.code == 0, done.err
    folder = "models" if kind == "linear" else "networks"
    assert new_files(project, before) == {
        "configs/mine.yaml", f"src/fen/{folder}/__init__.py", f"src/fen/{folder}/mine.py", "tests/fen/test_mine.py"
    }  # fmt: skip
    assert f"Its data is {KINDS[kind]} of litlab." in done.out


def test_without_the_overlay_a_check_is_what_takes_seconds(run, project):
    (project / "configs/with/smoke.yaml").unlink()
    done = run("new", "mine", "--like", "linear")
    assert "  python -m fen fit --config configs/mine.yaml --check\n" in done.out
    assert done.out.endswith("\nIts runs are kept in lightning_logs/mine/.\n")


def test_a_folder_that_is_a_package_already_stays_as_it_is(run, project):
    (project / "src/fen/networks").mkdir()
    (project / "src/fen/networks/__init__.py").write_text('"""Ours."""\n')
    before = contents(project)
    assert run("new", "mine", "--like", "text", "--model-only").code == 0
    assert new_files(project, before) == {"configs/mine.yaml", "src/fen/networks/mine.py", "tests/fen/test_mine.py"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my-net", "'my-net' can't be the name of a module; use lower-case letters, digits and _, and begin with a "
         "letter, such as my_net"),
        ("MyNet", "such as my_net"),
        ("my net.py", "such as my_net_py"),
        ("2nd", "begin with a letter"),
        ("_mine", "such as mine"),
        ("größe", "'größe' can't be the name"),
        ("a/b", "such as a_b"),
        ("../mine", "such as mine"),
        ("", "'' can't be the name"),
        ("mine\n", "such as mine"),
        ("x" * (LONGEST + 1), "a name of 61 characters is too long; use at most 60"),
        ("class", "class is a keyword of Python"),
        ("match", "match is a keyword of Python"),
        ("none", "its class would be None, which is Python's own"),
        ("exception", "its class would be Exception, which is Python's own"),
        ("null", "null is not a text in YAML, where the config has it"),
        ("off", "off is not a text in YAML"),
        ("last", "last has another meaning where runs are named"),
        ("smoke", "smoke has another meaning"),
        ("version_3", "version_3 has another meaning"),
        ("test", "test is a module of Python or of an installed package"),
        ("torch", "torch is a module of Python or of an installed package"),
        ("fen", "fen is a module"),
        ("image", "there is a class ImageData in litlab already"),
        ("classifier", "there is a class Classifier in litlab already"),
        ("tensor", "networks/tensor.py would import another Tensor"),
    ],
)  # fmt: skip
def test_names_that_none_can_have(run, project, name, says):
    before = contents(project)
    done = run("new", name, "--like", "cifar")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: new: ")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert contents(project) == before


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("configs/mine.yaml", "", "configs/mine.yaml is there already"),
        ("src/fen/networks/mine.py", "", "src/fen/networks/mine.py is there already"),
        ("src/fen/callbacks/mine.py", "", "src/fen/callbacks/mine.py is there already"),
        ("src/fen/mine/__init__.py", "", "src/fen/mine is there already"),
        ("tests/fen/test_mine.py", "", "tests/fen/test_mine.py is there already"),
        ("tests/fen/short/MineData.py", "", "tests/fen/short/MineData.py is there already"),
        ("src/fen/nets.py", "class Mine:\n    pass\n", "there is a class Mine in src/fen/nets.py already"),
        ("src/fen/sets.py", "class MineData:\n    pass\n", "there is a class MineData in src/fen/sets.py already"),
    ],
)
def test_what_is_there_already_is_not_touched(run, project, file, text, says):
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(text)
    before = contents(project)
    done = run("new", "mine", "--like", "forecast")
    assert (done.code, done.out, done.err) == (2, "", f"error: new: {says}; choose another name\n")
    assert contents(project) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mine", "--like", "cifer"], "new: --like: there is no kind 'cifer'; did you mean 'cifar'?"),
        (["mine", "--like", "gan"], "there is no kind 'gan'; choose from cifar, text, forecast, tabular, linear"),
        (["mine"], "new: the following arguments are required: --like"),
        (["--like", "cifar"], "new: the following arguments are required: NAME"),
        (["mine", "--like", "cifar", "--modelonly"], "unrecognized arguments: --modelonly"),
    ],
)
def test_arguments_that_are_wrong(run, project, arguments, says):
    before = contents(project)
    done = run("new", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert says in done.err
    assert contents(project) == before


def test_all_files_are_written_or_none(run, project):
    (project / "tests/fen/short").write_text("a file where a folder is needed for the last file")
    before = contents(project)
    done = run("new", "mine", "--like", "cifar")
    assert done.code == 2
    says = "new: tests/fen/short/MineData.py can't be written (Not a directory), so nothing was"
    assert done.err == f"error: {says}\n"
    assert contents(project) == before


def test_it_says_where_to_run_it(run, project, monkeypatch):
    monkeypatch.chdir(project / "configs")
    done = run("new", "mine", "--like", "cifar")
    says = f"new: run it in the project's root, where configs/ is: cd {project.resolve()}"
    assert (done.code, done.err) == (2, f"error: {says}\n")
    monkeypatch.chdir(project)
    (project / "tests/fen").rename(project / "tests/other")
    done = run("new", "mine", "--like", "cifar")
    assert (done.code, done.err) == (2, "error: new: there is no tests/fen/ for its test; make it\n")
    (project / "configs").rename(project / "settings")
    done = run("new", "mine", "--like", "cifar")
    assert done.code == 2
    assert done.err.startswith(f"error: new: there is no configs/ in {project.resolve()}; make it, or")
