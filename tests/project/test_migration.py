"""docs/migration/: what the pages show before and after is run, and does the same.

A block of Python or YAML is a file, which the line before it names. The scripts run as they stand, and the files for
this project are put where the pages say. Batches come in order on both sides, as they shuffle differently.
"""

import ast
import importlib
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from litlab.commands.sweep.spec import check_space, read_spec
from tests.conftest import PACKAGE, ROOT, Outcome
from tests.processes import Python

PAGES = sorted((ROOT / "docs/migration").glob("*.md"))
BLOCK = re.compile(r"(?:^`([^`\n]+)`[^`\n]*:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CPU = ["--trainer.accelerator=cpu", "--trainer.precision=32-true"]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:The number of training batches", "ignore:.*using `ckpt_path`"
)


def read(page: str, side: str) -> tuple[dict[str, str], list[list[str]]]:
    """The files of a page, before or after, with batches in order; and its commands, as words."""
    before, _, after = (ROOT / "docs/migration" / page).read_text().partition("\n## After\n")
    found = BLOCK.findall(before if side == "before" else after)
    assert all(bool(name) == (kind in ("python", "yaml")) for name, kind, _ in found), page
    files = {name: text.replace("shuffle=True", "shuffle=False") for name, _, text in found if name}
    lines = [line for name, kind, text in found if kind == "bash" for line in text.splitlines() if line]
    return files, [shlex.split(line) for line in lines]


def write(files: dict[str, str]) -> None:
    """Write files into the working directory."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def script(*arguments: object) -> str:
    """Run a script of the working directory in a process of its own, and return what it printed."""
    process = Python(*arguments, cwd=Path.cwd(), environment={"PYTHONPATH": Path.cwd()})
    out, err = process.communicate()
    assert process.wait() == 0, err
    return out


@pytest.fixture
def project(run, monkeypatch) -> Callable[[str], Callable[..., Outcome]]:
    """Puts the files of a page where it says, as part of the project; then runs commands of the project."""

    def migrate(page: str) -> Callable[..., Outcome]:
        files, commands = read(page, "after")
        write(files)
        for words in commands:
            if words[0] == "cp" and words[2].startswith("src/"):
                Path(words[2]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(words[1], words[2])
        for folder in Path(f"src/{PACKAGE}").iterdir():
            package = importlib.import_module(f"{PACKAGE}.{folder.name}")
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder.absolute())])
            for file in folder.glob("[!_]*.py"):  # they are not in the package's folder, where short names are found
                importlib.import_module(f"{PACKAGE}.{folder.name}.{file.stem}")
        return run

    return migrate


def values(printed: str, name: str) -> list[float]:
    """The values of a metric, in the order in which they were printed."""
    return [float(value) for value in re.findall(rf"{name}\W+([\d.]+)", printed)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_all_commands_are_of_this_project(page):
    after = read(page.name, "after")[1]
    assert {words[2] for words in after if words[0] == "python" and words[1] == "-m"} == {PACKAGE}
    prose = BLOCK.sub("", page.read_text())
    assert max(map(len, prose.replace(PACKAGE, "").splitlines())) <= 120  # also with a longer name


def test_pytorch(project):
    write(read("pytorch.md", "before")[0])
    printed = script("train.py", "--epochs", "2")
    run = project("pytorch.md")
    config = ["--config", "configs/digits.yaml", *CPU]
    done = run("fit", *config, "--trainer.max_epochs=2")
    assert done.code == 0, done.err
    for name in ("train/loss", "val/acc"):
        theirs, ours = values(printed, name), values(done.out + done.err, rf"epoch \d/2.*?{name}")
        assert len(theirs) == 2
        assert ours == pytest.approx(theirs, rel=1e-3), name  # printed with four digits

    still = run("fit", *config, "--trainer.max_epochs=1", "--init_from=best.pt", "--model.optimizer.lr=1e-12")
    [shown] = re.findall(r"```text\n(.*)\n```", (ROOT / "docs/migration/pytorch.md").read_text())
    assert shown in still.out + still.err
    best = max(values(printed, "val/acc"))
    assert values(still.out + still.err, "epoch 1/1.*?val/acc") == pytest.approx([best], rel=1e-3)


def test_lightning(project):
    write(read("lightning.md", "before")[0])
    printed = script("train.py")
    run = project("lightning.md")
    commands = read("lightning.md", "after")[1]
    [copy] = [words for words in commands if words[0] == "cp" and words[2] == "old.ckpt"]
    shutil.copy(*copy[1:])
    fitted, tested, warm, continued = (run(*words[3:], *CPU) for words in commands if words[0] == "python")
    for name in ("test/loss", "test/acc"):
        theirs = values(printed, name)[-1]
        assert [values(done.out, name)[-1] for done in (fitted, tested)] == pytest.approx([theirs] * 2, rel=1e-3), name
    assert "4 of the model's 4 tensors match" in warm.out + warm.err
    assert re.findall(r"epoch (\d+/\d+)", continued.out + continued.err) == ["6/6"]
    assert not Path("logs/digits/version_0/metrics.json").exists()


def test_hydra(project, monkeypatch):
    files, _ = read("hydra.md", "before")
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text)  # it needs hydra-core, which is not installed
        else:
            assert isinstance(yaml.safe_load(text), dict)
    write(read("lightning.md", "before")[0])
    run = project("hydra.md")
    fit, *_ = [words[3:] for words in read("hydra.md", "after")[1] if words[:1] == ["python"]]
    done = run(*fit, *CPU)
    assert done.code == 0, done.err
    config = yaml.safe_load(Path("lightning_logs/hydra_digits/version_0/config.yaml").read_text())
    theirs = yaml.safe_load(files["configs/model/wide.yaml"])
    assert config["model"]["init_args"] == {name: theirs[name] for name in ("width", "lr")}
    assert config["trainer"]["max_epochs"] == 2
    trainer = yaml.safe_load(files["configs/trainer/default.yaml"])
    assert config["trainer"]["gradient_clip_val"] == trainer["gradient_clip_val"]
    assert config["early_stopping"]["init_args"]["monitor"] == "val/acc"
    monkeypatch.setattr("sys.argv", ["check"])
    check_space(read_spec(Path("configs/sweeps/hydra_digits.yaml")))
