"""``new``: the files that it writes and names, and what it refuses without writing any."""

import pytest

from tests.litlab.commands.scaffold.tiny_project import contents
from tests.litlab.commands.scaffold.tiny_project import project as project


@pytest.fixture(scope="module")
def team() -> str:
    return "fen"


def test_it_prints_its_files_and_three_commands(run, project):
    before = contents(project)
    done = run("new", "my_net", "--like", "cifar")
    assert (done.code, done.err) == (0, "")
    files, _, commands = done.out.partition("Run it in seconds, test it, train it:\n")
    after = contents(project)
    written = {name for name in after.keys() - before.keys() if after[name] and "__init__" not in name}
    assert set(files.split()) == written == {
        "configs/my_net.yaml", "src/fen/data/my_net.py", "src/fen/networks/my_net.py", "tests/fen/test_my_net.py"
    }  # fmt: skip
    assert commands.splitlines() == [
        "  python -m fen fit --config configs/my_net.yaml --check",
        "  python -m pytest tests/fen/test_my_net.py",
        "  python -m fen fit --config configs/my_net.yaml",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["my-net"], "'my-net' can't be its name; use lower-case letters, digits and _"),
        (["../mine"], "'../mine' can't be its name"),
        (["class"], "class has another meaning"),
        (["last"], "last has another meaning"),
        (["exception"], "there is a class Exception already"),
        (["taken"], "configs/taken.yaml is there already"),
        (["theirs"], "there is a class Theirs already"),
        (["mine", "--like", "gan"], "argument --like: invalid choice: 'gan'"),
    ],
)
def test_what_can_not_be_is_one_line_and_writes_nothing(run, project, arguments, says):
    (project / "configs/taken.yaml").touch()
    (project / "src/fen/nets.py").write_text("class Theirs:\n    pass\n")
    before = contents(project)
    done = run("new", "--like", "cifar", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("error: new: ")
    assert says in done.err
    assert contents(project) == before
