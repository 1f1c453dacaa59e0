"""Every shipped config runs, and every overlay is parsed with each."""

from functools import partial
from itertools import product

import pytest

from litlab.cli.config import Command
from litlab.cli.resolve import imported
from litlab.errors import UserError
from litlab.tasks import Classifier, ExperimentModule
from tests.conftest import SHIPPED, settings_of
from tests.template.overlays import OVERLAYS, callbacks_of, config_of

# Overlays of optimizer and schedule, which any LightningModule need not have as settings; one line says so.
OF_TASKS = {"adamw8bit", "muon", "one_cycle", "plateau", "qat", "warm_restarts"}


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


@pytest.mark.matrix
@pytest.mark.parametrize(("config", "overlay"), [*product(SHIPPED, OVERLAYS)], ids=lambda path: path.stem)
def test_overlay_fits_experiment(config, overlay):
    """All that an overlay says is in the config that would be run, and it takes no callback away."""
    parse = partial(Command, ["fit", f"--config={config}", f"--config={overlay}"])
    model = imported(Command(["fit", f"--config={config}"]).config.model.class_path)
    needed = Classifier if overlay.stem == "tta" else ExperimentModule if overlay.stem in OF_TASKS else object
    if not issubclass(model, needed):
        with pytest.raises(UserError, match=r"^model"):
            parse()
        return
    merged = parse().config.as_dict()
    before, over = settings_of(config), settings_of(overlay)
    assert callbacks_of(before) <= callbacks_of(merged)
    assert merged["experiment"] == over.get("experiment", before["experiment"])
    for name, value in over.get("trainer", {}).items():
        if name == "callbacks+":
            assert callbacks_of({"trainer": {"callbacks": value}}) <= callbacks_of(merged)
        else:
            assert merged["trainer"][name] == value or isinstance(value, dict)
