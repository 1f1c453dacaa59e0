"""Each experiment, interrupted in the middle of an epoch and resumed, ends with the bits of a run
that was not.

tests/litlab has the matrix of interruptions.
"""

import pytest

from tests.conftest import CONFIGS, mark_slow, settings_of, small_data
from tests.litlab.checkpointing.resuming import Cell, Resuming

# For each experiment a batch with which an epoch has 7 batches, and flags that make it small.
EXPERIMENTS = {
    "cifar": (22, "--model.width=16"),
    "text": (18, "--data.max_tokens=16 --model.network.embed_dim=16"),
    "forecast": (96, "--model.network.hidden_size=8"),
    "tabular": (600, "--model=Regressor --data.target=[spend] --model.network.hidden_sizes=[8]"),
}


@pytest.fixture(scope="module")
def resuming(request, tmp_path_factory) -> Resuming:
    def own(cell: Cell) -> list[str]:
        config = CONFIGS / f"{cell.experiment}.yaml"
        name = settings_of(config)["data"]["class_path"].rpartition(".")[-1]
        batch, flags = EXPERIMENTS[cell.experiment]
        size = f"--data.batch_size={batch // cell.ranks}"
        return [f"--config={config}", *small_data(name, request), *flags.split(), size]

    return Resuming("project", tmp_path_factory.mktemp("resuming"), own)


# tests/litlab resumes such data and models as the others have
@pytest.mark.parametrize("experiment", mark_slow(EXPERIMENTS, "tabular"))
def test_a_resumed_run_is_exact(resuming, experiment):
    assert resuming.interrupted(Cell(experiment, "kill", "inside", workers=2))[1] == []
