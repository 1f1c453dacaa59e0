"""The tutorials in docs/tutorials/ work: all their files are written and all their commands run, in their order."""

import json
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from tests.conftest import PACKAGE, ROOT, Outcome
from tests.litlab.commands.serve.client import Response, Server
from tests.processes import Python, ranks
from tests.project.tutorial import TUTORIALS, blocks, copy_project, follow, run_in_copy

PAGES = sorted(TUTORIALS.glob("*.md"))
BRIEF = ["--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
SMALL = {
    "cifar": ["--model.width=16"],
    "text": ["--model.embed_dim=16"],
    "forecast": ["--model.hidden_size=8"],
    "tabular": ["--model.network.hidden_sizes=[16]"],
}
RUN = Path("lightning_logs")


def brief(words: list[str]) -> list[str]:
    """A command, and flags that make a training short; later settings win."""
    if words[0] != "fit" or "--config" not in words:
        return words
    name = Path(words[words.index("--config") + 1]).stem
    overlaid = any("profile.yaml" in word for word in words)  # which says itself how short it is
    return [*words, *(BRIEF[:1] if overlaid else BRIEF), *SMALL.get(name, [])]


@pytest.fixture
def here(run, tmp_path) -> Callable[[list[str]], Outcome]:
    """Runs a short command in this process, in a folder with the configs."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    return lambda words: run(*brief(words))


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Path:
    """A copy of the project, as the working directory."""
    copy_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_begins_with_its_goal_and_is_short(page):
    without_files = re.sub(r"```(?:python|yaml)\n.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = without_files.splitlines()
    assert lines[0].startswith("# ")
    assert [line.split(":")[0] for line in lines[2:6] if ":" in line][:1] == ["Goal"]
    assert "\nTime: " in "\n".join(lines[:7])
    assert 60 <= len(lines) <= 130
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert max(map(len, prose.replace(PACKAGE, "").splitlines())) <= 120  # also after a renaming to a longer name


def test_first_hour(here):
    for _ in follow("first_hour.md", here):
        pass
    assert Path("predictions.csv").read_text().count("\n") == 31
    assert (RUN / "cifar/version_0/confusion_matrix.png").is_file()
    assert (RUN / "cifar/version_0/report/index.html").is_file()


def test_own_csv(here):
    for _ in follow("own_csv.md", here):
        pass
    assert [Path(name).read_text().count("\n") for name in ("classes.csv", "tomorrow.csv", "leaves.csv")] == [
        601, 25, 801
    ]  # fmt: skip


def test_own_model(copy):
    [script] = [block.text for block in blocks("first_hour.md") if block.file == "make_photos.py"]
    exec(script, {})
    for block in follow("own_model.md", lambda words: run_in_copy(brief(words))):
        if block.kind == "python":
            assert "shortcut" in (copy / "src/project/networks/shapes.py").read_text()
    config = (RUN / "shapes/version_0/config.yaml").read_text()
    assert "blocks: 3" in config


def test_own_datamodule(copy):
    def stopped(_: str) -> Outcome:
        """Ctrl-C, in the third epoch."""
        fit = ["fit", "--config", "configs/meters.yaml", *BRIEF, "--trainer.max_epochs=12"]
        process = Python("-m", PACKAGE, *fit, cwd=copy, environment={"PYTHONPATH": copy / "src"})
        while "epoch 2/" not in "".join(process.printed()):
            assert process.poll() is None, process.printed()
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130, process.printed()
        return Outcome(0, *process.printed())

    def verb(words: list[str]) -> Outcome:
        whole = words[0] == "fit" and "meters_whole" in words
        return run_in_copy([*brief(words), *(["--trainer.max_epochs=12"] if whole else [])])

    others = {"python -m project fit --config configs/meters.yaml --trainer.max_epochs 200": stopped}
    for _ in follow("own_datamodule.md", verb, others):
        pass
    stopped_run, whole = (
        json.loads((RUN / name / "metrics.json").read_text()) for name in ("meters/version_1", "meters_whole/version_0")
    )
    assert stopped_run["test"] == whole["test"]
    assert stopped_run["best"]["value"] == whole["best"]["value"]


def test_reading_a_profile(copy):
    for _ in follow("reading_a_profile.md", lambda words: run_in_copy(brief(words))):
        pass
    written = [
        sum(file.stat().st_size for file in (RUN / f"histograms/version_{number}").glob("events.out.tfevents.*"))
        for number in range(2)
    ]
    assert written[0] > 3 * written[1] > 0  # histograms of 20 steps, and of one epoch


def test_sweep_to_result(here, children, monkeypatch):
    def verb(words: list[str]) -> Outcome:
        if words[:2] == ["sweep", "--config"]:
            return here([*words, "--trials", "2", "--workers", "1", "--", *BRIEF])
        return here([word.replace("0,1,2", "0,1") for word in words])

    monkeypatch.setenv("COLUMNS", "200")
    Path("benchmarks").mkdir()
    for name in ("README.md", "docs", "benchmarks/results"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, name)
    for _ in follow("sweep_to_result.md", verb):
        pass
    assert (RUN / "reports/tuned-seeds_0.html").is_file()
    assert "test/acc" in Path("benchmarks/results/experiments/tuned.json").read_text()


def test_many_gpus(here, run, tmp_path):
    def two_processes(command: str) -> Outcome:
        words = brief(shlex.split(command)[3:])
        both = [Python("-m", PACKAGE, *words, cwd=tmp_path, environment=rank) for rank in ranks(2)]
        codes = [process.wait() for process in both]
        return Outcome(max(codes), *both[0].printed())

    def valid(words: list[str]) -> Outcome:
        """Nothing here has such devices, or so many: the command is read, but not run."""
        return run(*words, "--print_config")

    def torchrun(command: str) -> Outcome:
        options = get_args_parser().parse_args(shlex.split(command)[1:])
        assert (options.module, options.training_script) == (True, PACKAGE)
        words = options.training_script_args
        assert words[words.index("--trainer.devices") + 1] == options.nproc_per_node
        return valid([word for word in words if word not in ("--resume", "auto")])

    others = {"torchrun": torchrun, "python -m project fit --config configs/tabular.yaml": two_processes}
    for _ in follow("many_gpus.md", valid, others):
        pass
    metrics = json.loads((RUN / "tabular/version_0/metrics.json").read_text())
    assert "test/acc" in metrics["test"]


def test_from_run_to_service(here, tmp_path):
    [script] = [block.text for block in blocks("own_csv.md") if block.file == "make_tables.py"]
    exec(script, {})
    servers: list[Server] = []

    def serve(command: str) -> Outcome:
        servers.append(Server(tmp_path, *shlex.split(command)[4:], package=PACKAGE))
        return Outcome(0, servers[0].printed(), "")

    def curl(command: str) -> Outcome:
        """What curl would send, and what it prints."""
        words = shlex.split(command)
        path = words[1].removeprefix("localhost:8000")
        if "-F" in words:
            response = servers[0].form(Path(words[-1].removeprefix("file=@")).read_bytes())
        elif "-d" in words:
            response = servers[0].post(words[-1].encode(), dict([words[words.index("-H") + 1].split(": ")]))
        else:
            response = servers[0].get(path)
        statuses.append(response)
        return Outcome(0, response.body.decode(), "")

    statuses: list[Response] = []
    try:
        for _ in follow("from_run_to_service.md", here, {"python -m project serve": serve, "curl": curl}):
            pass
        assert [response.status for response in statuses] == [200, 200, 422, 200]
    finally:
        assert all(server.end() == 0 for server in servers)
