"""What is wrong with a sweep is one line that names file and key, before anything is written."""

import pytest

from litlab.commands.sweep.check import completed_space
from litlab.commands.sweep.spec import read_spec
from litlab.commands.sweep.storage import open_storage
from litlab.errors import UserError

RANGE = {"low": 1, "high": 4}
WIDTH = {"model.hidden_size": RANGE}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"trails": 3}, "tiny.yaml: trails: there is no such key; did you mean 'trials'?"),
        ({"trials": None}, "tiny.yaml: trials: is missing; give a number of trials, hours, or both."),
        ({"trials": 2.5}, "tiny.yaml: trials: must be a whole number of at least 1, not 2.5."),
        ({"base": "no.yaml"}, "tiny.yaml: base: no.yaml: no such file; did you mean 'tiny.yaml'?"),
        ({"metric": None}, "tiny.yaml: metric: is missing; name what fit logs, such as val/acc, or a list of several."),
        ({"direction": "minimise"}, "tiny.yaml: direction: must be one of minimize, maximize, not 'minimise'; "
         "did you mean 'minimize'?"),
        ({"direction": "maximize"}, "tiny.yaml: direction: val/mse is better when lower; set minimize, or leave "
         "direction out."),
        ({"metric": "mine", "direction": None}, "tiny.yaml: direction: give one for each metric: 1, not 0."),
        ({"direction": ["minimize"] * 2}, "tiny.yaml: direction: give one for each metric: 1, not 2."),
        ({"sampler": "tep"}, "tiny.yaml: sampler: must be one of tpe, random, grid, cmaes, nsga2, not 'tep'; "
         "did you mean 'tpe'?"),
        ({"sampler": {"name": "tpe", "sed": 1}}, "tiny.yaml: sampler: TPESampler has no 'sed'; did you mean 'seed'?"),
        ({"sampler": {"name": "tpe", "n_startup_trials": "x"}}, "tiny.yaml: sampler.n_startup_trials: must be like "
         "its default 10, not 'x'."),
        ({"pruner": {"name": "median", "n_warmup_steps": True}}, "tiny.yaml: pruner.n_warmup_steps: must be like "
         "its default 0, not 'True'."),
        ({"metric": ["a", "b"], "direction": ["minimize"] * 2, "pruner": "median"}, "tiny.yaml: pruner: median "
         "compares one metric, not 2; set it to none."),
        ({"space": {}}, "tiny.yaml: space: is missing; list YAML paths, each with a range or choices."),
        ({"space": {"model.width": [1, 2]}}, "tiny.yaml: space.model.width: must be {low: ..., high: ...} or "
         "{choices: [...]}."),
        ({"space": {"model.width": {"low": 5, "high": 1}}}, "tiny.yaml: space.model.width: low <= high must hold, but "
         "got (low=5, high=1)."),
        ({"space": {"model.width": {"low": 0, "high": 1, "log": True}}}, "tiny.yaml: space.model.width: low >= 1 must "
         "hold for log=True, but got (low=0, high=1)."),
        ({"space": {"model.width": {"low": 1, "high": 2, "log": True, "step": 1}}}, "tiny.yaml: space.model.width: "
         "log and step do not go together; remove one."),
        ({"space": {"model.width": {"low": 1, "high": 4, "step": 2}}}, "tiny.yaml: space.model.width: high 4 is not a "
         "whole number of steps of 2 above low 1."),
        ({"space": {"model.width": {"low": 1, "high": "x"}}}, "tiny.yaml: space.model.width.high: must be a number, "
         "not 'x'."),
        ({"space": {"model.dropout": {"low": 0.1, "high": 0.2}}, "sampler": "grid"}, "tiny.yaml: space.model.dropout: "
         "a grid needs a step, or choices."),
        ({"space": {"model.width": {**RANGE, "when": {"model.cell": "gru"}}}}, "tiny.yaml: space.model.width.when: "
         "'model.cell' is not an earlier entry"),
        ({"space": {"model.cell": {"choices": ["lstm"]}, "model.width": {**RANGE, "when": {"model.cell": "gru"}}}},
         "tiny.yaml: space.model.width.when: 'gru' is not a choice of model.cell (lstm)."),
        ({"space": {"seed_everything": RANGE}}, "tiny.yaml: space.seed_everything: is set by the sweep itself, for "
         "each trial; remove it."),
        ({"space": WIDTH, "settings": {"model.hidden_size": 8}},
         "tiny.yaml: settings.model.hidden_size: is searched in space too; "
         "remove one."),
        ({"name": "a/b"}, "tiny.yaml: name: 'a/b' is not a valid folder name."),
    ],
)  # fmt: skip
def test_sweep_file(refused, content, line):
    assert refused(**content) == line


def test_file_that_is_none(run, tmp_path):
    (tmp_path / "broken.yaml").write_text("a: [")
    assert run("sweep", "--config", "nowhere.yaml").err == "error: nowhere.yaml: no such file\n"
    assert run("sweep", "--config", "broken.yaml").err.startswith("error: broken.yaml:2: not valid YAML: ")
    assert run("sweep").err == "error: sweep: the following arguments are required: --config\n"
    assert run("sweep", "--wokers", "2", "--config", "a").err.endswith("unrecognized arguments: --wokers 2\n")


def test_sweep_that_was_not_started(run, sweep):
    assert run("sweep", "status", "nothing").err == "error: there is no sweep 'nothing': there are none yet.\n"
    line = "error: sweep status: tiny has not been started; run python -m auks sweep --config tiny.yaml\n"
    assert run("sweep", "status", "--config", "tiny.yaml").err == line


@pytest.fixture
def found(sweep, monkeypatch):
    """What the check of a sweep file finds, in this process."""

    def check_here(*arguments: str, **content):
        monkeypatch.setattr("sys.argv", ["check"])
        return completed_space(read_spec(sweep.write(**content), arguments=list(arguments)))

    return check_here


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"space": {"model.hiden_size": RANGE}},
         "space: model.hiden_size: SmallForecaster has no 'hiden_size'; did you mean 'hidden_size'?"),
        ({"space": {"trainer.max_epoch": RANGE}}, "space: trainer.max_epoch: there is no such setting; "
         "did you mean 'trainer.max_epochs'?"),
        ({"space": {"model.hidden_size": {"low": 1.0, "high": 2.5}}},
         "space: model.hidden_size: 1.0 is not valid; it must be int"),
        ({"space": {"model.activation": {"choices": ["tanh", "rellu"]}}}, "space: model.activation: rellu is not "
         "valid; it must be 'tanh', 'relu'"),
        ({"settings": {"trainer.max_epoch": 1}}, "settings: trainer.max_epoch: there is no such setting; "
         "did you mean 'trainer.max_epochs'?"),
    ],
)  # fmt: skip
def test_values_that_the_config_refuses(found, sweep, content, line):
    with pytest.raises(UserError) as error:
        found(**content)
    assert str(error.value).startswith(f"{sweep.file}: {line}")


def test_block_keeps_nothing_of_another_class(found, sweep):
    """The base's Adam has lr 0.005: an SGD that names no lr would be given it, in place of SGD's own default."""
    blocks = {"sgd": {"class_path": "torch.optim.SGD"}, "adam": {"class_path": "torch.optim.Adam"}}
    named = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.005}}
    result = found(space={"model.optimizer": {"choices": {**blocks, "named": named}}})
    entry = result["model.optimizer"]
    assert entry.setting("sgd")["init_args"] == {"lr": 0.001}
    assert entry.setting("adam") == blocks["adam"]
    assert entry.setting("named") == named
    assert read_spec(sweep.file).space["model.optimizer"].setting("sgd") == blocks["sgd"]


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("postgresql://me:secret@127.0.0.1:9/nowhere", "LITLAB_SWEEP_STORAGE: the storage can't be used: "),
        ("nonsense", "LITLAB_SWEEP_STORAGE: not the address of a database, such as postgresql://host/name."),
        ("oracle://me:secret@host/name", "LITLAB_SWEEP_STORAGE: "),
    ],
)
def test_storage_that_can_not_be_used(monkeypatch, tmp_path, address, line):
    monkeypatch.setenv("LITLAB_SWEEP_STORAGE", address)
    with pytest.raises(UserError) as error:
        open_storage(tmp_path)
    assert str(error.value).startswith(line)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_trials_of_a_grid_are_its_points(sweep):
    space = {"model.width": {"low": 8, "high": 32, "step": 8}, "model.cell": {"choices": ["lstm", "gru"]}}
    assert read_spec(sweep.write(space=space, sampler="grid", trials=None)).trials == 8
    assert read_spec(sweep.write(trials=9)).trials == 8
    assert read_spec(sweep.write(trials=3)).trials == 3
