"""A compiled run that is stopped within an epoch and resumed: exact in every bit, with dropout compiled too."""

import pytest
import torch

from litlab.callbacks import Compile
from tests.litlab.checkpointing.in_process import fit
from tests.litlab.checkpointing.resuming import leaves, same

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*logging interval", "ignore:Checkpoint directory"
)


@pytest.mark.parametrize("place", [("batch", 1, 3), ("validation", 1, 0)], ids=str)
def test_resumed_within_an_epoch(tmp_path, monkeypatch, place):
    monkeypatch.setenv("PL_GLOBAL_SEED", "")
    parts = {"whole": (None, False), "stopped": (place, False), "resumed": (None, True)}
    for name, (stop, resume) in parts.items():
        torch._dynamo.reset()  # the resumed run compiles in a process of its own
        folder = tmp_path / ("whole" if name == "whole" else "parts")
        fit(folder, stop, resume, callbacks=[Compile("default", backend="aot_eager")])
    torch._dynamo.reset()
    states = [torch.load(tmp_path / name / "last.ckpt", weights_only=True) for name in ("whole", "parts")]
    for key in ("state_dict", "optimizer_states"):
        whole, resumed = (dict(leaves(state[key])) for state in states)
        assert whole.keys() == resumed.keys()
        assert [name for name in whole if not same(whole[name], resumed[name])] == []
