"""`python -m auks results --add`: the results of runs as a result file."""

import getpass
import json
import socket
from pathlib import Path

import pytest
import yaml

from tests.conftest import Outcome
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.make import write, write_run

FILE = Path("benchmarks/results/experiments/mine.json")
TABLE = """\
columns:
  - experiment: "`{config}`"
  - data: "{data}"
  - result: "{result > metric} {result | 3}"
  - baseline: "{baseline > name} {baseline | 3}"
rows:
  - from: experiments/*.json
"""
MARKERS = "<!-- results: experiments -->\n<!-- end of results -->\n"


@pytest.fixture
def root(run, tmp_path) -> Path:
    return tmp_path / "lightning_logs"


def seed(root: Path, number: int, acc: float, **more) -> None:
    """A run of `mine` with a seed, as it is left."""
    home = "/home/Jane Doe/data"
    command = ["fit", "--config=/home/Jane Doe/configs/mine.yaml", f"--data.path={home}", "--seed_everything", number]
    data = {"description": f"folder {home}: 7 images", "fingerprint": "f", "generated": False}
    hardware = {"cpu": "A CPU", "cores": 2, "host": socket.gethostname(), "device": "cpu", "precision": "32-true"}
    made = {"command": ["python", "-m", "auks", *map(str, command)], "data": data, "hardware": hardware, "seed": number,
            "started": "2026-01-31T10:00:00+00:00", "versions": {"torch": "2.15.0", "rich": "15"},
            "directory": "/home/Jane Doe"}  # fmt: skip
    folder = write_run(root, f"mine/version_{number}", test={"test/acc": acc, "test/loss": 1.0}, **{**made, **more})
    config = yaml.safe_load(folder.config.read_text())
    config |= {"seed_everything": number, "data": {"class_path": "ImageData", "init_args": {"path": home}}}
    folder.config.write_text(yaml.safe_dump(config))
    rows = {"Net": {"test/acc": acc}, "guess": {"test/acc": 0.1}, "linear": {"test/acc": 0.5}}
    write(folder.path / "baselines.json", **rows)


def test_seeds_of_an_experiment(root, run, tmp_path):
    seed(root, 0, 0.8)
    seed(root, 1, 0.9, dirty=True)
    done = run("results", "--add", "mine/version_0", "mine/version_1", "--as", "mine", "--note", "beside other work")
    assert (done.code, done.out.splitlines()[0]) == (0, f"{FILE}: added"), done.err
    text = (tmp_path / FILE).read_text()
    found = json.loads(text)
    acc = {"mean": 0.85, "deviation": 0.070711, "min": 0.8, "max": 0.9, "values": [0.8, 0.9]}
    assert found["result"] == {"metric": "test/acc", **acc}
    assert found["metrics"]["test/acc"] == acc
    assert found["metrics"]["val/acc"]["mean"] == 0.8
    assert found["baselines"]["guess"]["test/acc"]["values"] == [0.1, 0.1]
    assert (found["baseline"]["name"], found["baseline"]["mean"]) == ("linear", 0.5)
    assert found["minutes"]["mean"] == 1.5
    assert found["command"] == "fit --config=mine.yaml --data.path=data"
    assert {name: found[name] for name in ("seeds", "date", "cpu", "gpu", "config", "data", "versions")} == {
        "seeds": [0, 1], "date": "2026-01-31", "cpu": "A CPU, 2 cores", "gpu": None,
        "config": "mine.yaml", "data": "folder data: 7 images", "versions": {"torch": "2.15.0"},
    }  # fmt: skip
    assert found["commit"] == "1234567; 1234567 + changes"
    assert found["precision"] == "32-true"
    assert found["note"] == "beside other work"
    assert not [word for word in ("Jane", "/home", "lightning_logs", f'"{socket.gethostname()}"') if word in text]


def test_a_group_of_seeds_is_its_runs(root, run, tmp_path):
    for number in range(2):
        seed(root, number, 0.8)
        (root / f"mine/seeds_0/seed_{number}").mkdir(parents=True)
        (root / f"mine/version_{number}").rename(root / f"mine/seeds_0/seed_{number}/version_0")
    write(root / "mine/seeds_0/repeat.json", members=[0, 1])
    path = root / "mine/seeds_0/seed_0/version_0/provenance.json"
    command = ["python", "-m", "auks", "fit", "--model.width=8", "--experiment=mine/seeds_0/seed_0"]
    write(path, **{**json.loads(path.read_text()), "command": command, "hardware": {}})
    assert run("results", "--add", "mine/seeds_0", "--as", "mine").code == 0
    found = json.loads((tmp_path / FILE).read_text())
    assert found["seeds"] == [0, 1]
    assert (found["command"], found["config"]) == ("fit --model.width=8 --experiment=mine", "mine")
    assert found["cpu"] == "A CPU, 2 cores"


def test_a_metric_of_some_runs_is_null_for_the_others(root, run, tmp_path):
    for number, name in enumerate(("acc", "f1")):
        seed(root, number, 0.8)
        folder = root / f"mine/version_{number}"
        metrics = json.loads((folder / "metrics.json").read_text())
        write(folder / "metrics.json", **{**metrics, "test": {"test/loss": float("nan"), f"test/{name}": 0.5}})
        write(folder / "baselines.json", Net={}, guess={f"test/{name}": 0.1}, **{f"only {name}": {"test/acc": None}})
    assert run("results", "--add", "mine/version_0", "mine/version_1", "--as", "mine").code == 0
    found = json.loads((tmp_path / FILE).read_text())
    values = {name: each["values"] for name, each in found["metrics"].items() if name.startswith("test/")}
    assert values == {"test/loss": [None, None], "test/acc": [0.5, None], "test/f1": [None, 0.5]}
    assert found["baselines"]["guess"]["test/f1"]["values"] == [None, 0.1]
    assert found["baselines"]["only f1"] == {}


def test_the_readme_has_a_row_after_one_command(run, texts, tmp_path):
    """Of real runs, one of them on generated data."""
    short = ["--trainer.max_epochs", 1, "--trainer.limit_train_batches", 2, "--trainer.accelerator", "cpu"]
    baselines = '--trainer.callbacks=[{"class_path": "Baselines"}]'
    data = ["--data.dataset", "csv", "--data.path", texts]
    assert run("fit", "--config", CONFIGS / "text.yaml", *data, *short, baselines).code == 0
    assert run("fit", "--config", CONFIGS / "table.yaml", *short).code == 0
    (tmp_path / "benchmarks/results/tables").mkdir(parents=True)
    (tmp_path / "benchmarks/results/tables/experiments.yaml").write_text(TABLE)
    (tmp_path / "README.md").write_text(MARKERS)

    done = run("results", "--add", "text", "--as", "mine")
    assert done.code == 0, done.err
    assert done.out == f"{FILE}: added\nREADME.md:1: experiments is rewritten\n"
    *_, row, _, made_by, _, _ = (tmp_path / "README.md").read_text().split("\n")
    found = json.loads((tmp_path / FILE).read_text())
    metrics = json.loads((tmp_path / "lightning_logs/text/version_0/metrics.json").read_text())
    assert found["result"]["values"] == [pytest.approx(metrics["test"]["test/acc"], abs=1e-6)]
    assert row.startswith("| `text.yaml` | csv texts.csv: 1")
    assert row.endswith(f"| test/acc {found['result']['mean']:.3f} | TF-IDF + linear SVM 1.00 |".replace(" 0.", " ."))
    made = "Made by `python -m auks fit --config text.yaml --data.dataset csv --data.path texts.csv --trainer.max_epo"
    assert made_by.startswith(made)
    assert "seed 0; 20" in made_by
    assert not [word for word in (str(tmp_path), getpass.getuser() + "/", "pytest") if word in json.dumps(found)]

    assert done.err == ""
    done = run("results", "--add", "table", "--as", "made_up")
    assert done.code == 0
    assert done.err == "warning: experiments/made_up.json: on GENERATED data; it says nothing about the real data\n"
    text = (tmp_path / "README.md").read_text()
    assert "\n| `table.yaml` |" in text
    assert "\n| `text.yaml` |" in text
    assert "; on generated data" in text
    assert run("results", "--check").code == 0


def refused(done: Outcome, said: str) -> None:
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert said in done.err
    assert not FILE.exists()


def test_runs_that_have_no_mean_are_refused(root, run):
    add = ["results", "--as", "mine", "--add"]
    seed(root, 0, 0.8)
    refused(run(*add, "mine", "mine/version_0"), "have the seeds 0, 0; give runs with a seed each")
    seed(root, 1, 0.8, data={"fingerprint": "g"})
    refused(run(*add, "mine/version_0", "mine/version_1"), "mine/version_0 and mine/version_1 read different data")
    seed(root, 2, 0.8, width=99)
    refused(run(*add, "mine/version_0", "mine/version_2"), "differ by more than the seed: in model.width")
    write_run(root, "mine/version_3")
    refused(run(*add, "mine/version_3"), "has no test metrics; `python -m auks test --run mine/version_3` makes them")
    write_run(root, "mine/version_4", test={"test/acc": 0.1}, command=None)
    refused(run(*add, "mine/version_4"), "provenance.json doesn't say which command made it")
    (root / "mine/version_0/baselines.json").write_text('{"Net": {}, "guess": [0.5]}')
    refused(run(*add, "mine/version_0"), "baselines.json is damaged ('guess' is [0.5])")
    refused(run(*add, "mien"), "mien: there is no such run; did you mean 'mine'?")


def test_nothing_is_added_where_a_table_is_wrong(root, run, tmp_path):
    seed(root, 0, 0.8)
    (tmp_path / "README.md").write_text(MARKERS)
    refused(run("results", "--add", "mine", "--as", "mine"), "README.md:1: there is no table 'experiments'")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--add", "mine"], "--add, --as and --note belong together"),
        (["--as", "mine"], "--add, --as and --note belong together"),
        (["--note", "x"], "--add, --as and --note belong together"),
        (["--add", "mine", "--as", "../mine"], "--as: '../mine' can't be the name of a file"),
        (["--add", "mine", "--as", "mine", "--check"], "--check writes nothing"),
        (["--chek"], "unrecognized arguments: --chek"),
    ],
)
def test_options_that_make_no_sense_together(root, run, arguments, said):
    seed(root, 0, 0.8)
    refused(run("results", *arguments), said)
