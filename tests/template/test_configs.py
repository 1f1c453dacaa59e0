"""Shipped configs and sweeps, what `fit --plan` says to add, a network of timm by YAML."""

import pytest

from litlab.cli.config import Command
from litlab.commands.plan.plan import Devices, Layout
from litlab.commands.sweep.spec import check_space, read_spec
from tests.conftest import CONFIGS, SHIPPED, experiment_of, mark_slow, settings_of
from tests.template.overlays import SMALL, config_of


@pytest.mark.parametrize("config", SHIPPED, ids=experiment_of)
def test_experiment(run, short, tmp_path, config):
    experiment = settings_of(config)["experiment"]
    assert experiment == experiment_of(config)
    done = run("fit --config", config, *short(config), *SMALL.get(experiment, [])).check()
    assert "Test metric" not in done.out, "Lightning's table says what the summary says"
    folder = tmp_path / f"lightning_logs/{experiment}/version_0"
    assert (folder / "checkpoints/last.ckpt").is_file()
    # And yet it names nothing that is refused
    assert Command(["test", "--run", str(folder)]).line.is_foreign
    if monitor := config_of(folder)["checkpoint"]["init_args"]["monitor"]:
        assert monitor.replace("val/", "test/") in done.out


SWEEPS = sorted(path.stem for path in CONFIGS.glob("sweeps/*.yaml"))


@pytest.mark.parametrize("name", mark_slow(SWEEPS, "cifar"))
def test_sweep_fits_its_config(name):
    """Every path and value, by the parser of fit."""
    check_space(read_spec(CONFIGS / f"sweeps/{name}.yaml"))


@pytest.mark.parametrize("layout", [Layout(), Layout("fsdp2"), Layout("fsdp2", 2)], ids=str)
def test_what_it_says_to_add_is_there(layout, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    flags = layout.flags(Devices(1, 2, 2**30))
    assert Command(["fit", "--config=configs/text.yaml", *flags]).config.trainer.strategy != "auto"


pytest.importorskip("timm")


def test_it_is_fitted_trained_and_tested_again(run, short):
    config = CONFIGS / "cifar.yaml"
    model = """
        --model=Classifier --model.network=timm.create_model --model.network.model_name=resnet10t
        --model.network.pretrained=false --model.network.drop_rate=0.1
        --model.optimizer=torch.optim.AdamW --data.mode=L --data.batch_size=20
        --trainer.limit_train_batches=1 --trainer.limit_val_batches=1 --test_after_fit=false
    """
    run("fit --config", config, *short(config), *model.split()).check()
    assert "test/acc" in run("test --run=last --trainer.limit_test_batches=1").out
