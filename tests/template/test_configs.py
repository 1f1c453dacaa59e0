"""Every shipped config runs."""

import pytest

from tests.conftest import SHIPPED, settings_of
from tests.template.overlays import config_of


@pytest.mark.parametrize("config", SHIPPED, ids=lambda path: path.stem)
def test_experiment(run, short, tmp_path, config):
    experiment = settings_of(config)["experiment"]
    assert experiment == config.stem
    done = run("fit", "--config", config, *short(config))
    assert done.code == 0, done.err
    folder = tmp_path / f"lightning_logs/{experiment}/version_0"
    assert (folder / "checkpoints/last.ckpt").is_file()
    if monitor := config_of(folder)["checkpoint"]["init_args"]["monitor"]:
        assert monitor.replace("val/", "test/") in done.out
