"""What a sweep has found, as an overlay."""

import dataclasses
from pathlib import Path

import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from litlab.commands.sweep.best import write_best
from tests.litlab.commands.sweep.studies import choice, create, ended, search_range, spec
from tests.litlab.conftest import CONFIGS

SGD = {"class_path": "torch.optim.SGD", "init_args": {"momentum": 0.9}}
SPACE = {
    "model.hidden_size": search_range(8, 64),
    "model.optimizer": choice({"sgd": SGD, "adam": {"class_path": "torch.optim.Adam"}}),
    "model.optimizer.lr": search_range(1e-3, 1e-1, log=True),
    "data.batch_size": choice({16: 16, 32: 32}),
}
DISTRIBUTIONS = {
    "model.hidden_size": IntDistribution(8, 64),
    "model.optimizer": CategoricalDistribution(["sgd", "adam"]),
    "model.optimizer.lr": FloatDistribution(1e-3, 1e-1, log=True),
    "data.batch_size": CategoricalDistribution([16, 32]),
}
FOUND = {"model.hidden_size": 24, "model.optimizer": "sgd", "model.optimizer.lr": 0.0125, "data.batch_size": 16}


@pytest.fixture
def sweep(tmp_path):
    return spec(tmp_path, space=SPACE, base=[CONFIGS / "series.yaml"], metrics=["val/mse"], directions=["minimize"])


def study(sweep, *outcomes):
    """A study with trials of some values, all but the last one of a width of their own."""
    made = create(sweep)
    for number, values in enumerate(outcomes, start=1):
        others = {} if number == len(outcomes) else {"model.hidden_size": 39 + number}
        ended(made, FOUND | others, DISTRIBUTIONS, values=values)
    return made.trials


def test_fit_takes_it_as_it_is(sweep, run):
    [file] = write_best(sweep, study(sweep, [0.5], [0.3], [0.2]))
    assert file == sweep.folder / "best.yaml"
    printed = run("fit", "--config", sweep.base[0], "--config", file, "--print_config")
    config = yaml.safe_load(printed.out)
    assert config["model"]["init_args"]["hidden_size"] == 24
    optimizer = config["model"]["init_args"]["optimizer"]
    assert optimizer["class_path"] == "torch.optim.SGD"
    assert (optimizer["init_args"]["lr"], optimizer["init_args"]["momentum"]) == (0.0125, 0.9)
    assert config["data"]["init_args"]["batch_size"] == 16


def test_its_heading_says_where_it_comes_from_but_no_secret(sweep):
    sweep = dataclasses.replace(
        sweep, settings={"trainer.max_epochs": 2}, arguments=["--data.hf_token", "s3cr3t"], seeds=2
    )
    trials = study(sweep, [0.2])
    trials[0].set_user_attr("values_by_seed", [[0.1], [0.3]])
    [file] = write_best(sweep, trials)
    assert file.read_text().splitlines()[:3] == [
        f"# Trial {trials[0].number} of the sweep cifar: val/mse 0.2 (standard deviation over 2 seeds 0.1414).",
        f"#   python -m auks fit --config {sweep.base[0]} --config {file}",
        "# Found with --trainer.max_epochs=2 --data.hf_token ***",
    ]


def test_several_metrics_leave_a_front(sweep):
    sweep = dataclasses.replace(sweep, metrics=["val/mse", "val/mae"], directions=["minimize", "minimize"])
    files = write_best(sweep, study(sweep, [0.1, 0.9], [0.3, 0.95], [0.2, 0.5]))
    assert [file.name for file in files] == ["best_1.yaml", "best_2.yaml"]
    widths = [yaml.safe_load(file.read_text())["model.hidden_size"] for file in files]
    assert widths == [40, 24]


def test_nothing_found_nothing_written(sweep):
    assert write_best(sweep, []) == []
    assert not list(Path(sweep.folder).glob("best*"))
