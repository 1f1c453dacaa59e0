"""A run with parameter groups that is killed while a part is frozen, or after that, and resumed: exact in every bit."""

import pytest

from tests.litlab.checkpointing.resuming import Cell, Resuming
from tests.litlab.conftest import CONFIGS

GROUPS = "{rules: [{params: network.5, lr_scale: 2.0}], layer_decay: 0.5, decay_norms_and_biases: false}"

INTERRUPTIONS = [("kill", "inside", 0, 2), ("exception", "end", 2, 1), ("SIGTERM", "last batch", 0, 2)]


@pytest.fixture(scope="module")
def resuming(images, tmp_path_factory) -> Resuming:
    def own(cell: Cell) -> list[str]:
        epochs = {"frozen": 2, "unfrozen": 1}[cell.experiment]  # the second epoch is interrupted
        rules = f"{{rules: [{{params: network.5, epochs: 0}}, {{params: network, epochs: {epochs}}}]}}"
        return [
            "--config", str(CONFIGS / "images.yaml"), "--data.dataset=folder", f"--data.path={images}",
            f"--data.batch_size={22 // cell.ranks}", f"--freeze={rules}", f"--model.param_groups={GROUPS}",
        ]  # fmt: skip

    return Resuming("auks", tmp_path_factory.mktemp("resuming"), own)


@pytest.mark.parametrize("cell", [Cell("frozen", "kill", "inside"), Cell("unfrozen", "kill", "inside")], ids=str)
def test_resumed_in_either_phase(resuming, cell):
    assert resuming.interrupted(cell)[1] == []


@pytest.mark.matrix
@pytest.mark.parametrize("experiment", ["frozen", "unfrozen"])
@pytest.mark.parametrize(
    ("how", "place", "ranks"), [("kill", "inside", 2), ("exception", "end", 1), ("SIGTERM", "last batch", 2)]
)
def test_however_it_is_interrupted(resuming, experiment, how, place, ranks):
    assert resuming.interrupted(Cell(experiment, how, place, ranks=ranks))[1] == []
