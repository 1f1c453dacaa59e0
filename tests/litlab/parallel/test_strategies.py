"""Each strategy against one process, or DDP.

Neither 21 nor 17 samples of validation and test can be divided among the processes.
"""

import pytest
import torch

from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.runs.folder import read_json
from tests.litlab.callbacks.tiny import are_equal


def saved(folder, name):
    return AtomicCheckpointIO().load_checkpoint(folder / f"{name}.ckpt")


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        ("ddp_thawed", "one_thawed", 2e-6),
        ("tp_frozen", "one_frozen", 2e-6),
        ("tp_rich", "one_rich", 2e-6),  # processes that share layers drop the same values
        ("fsdp2_rich", "ddp_rich", 2e-6),
        ("fsdp2_swa", "ddp_swa", 2e-6),  # the statistics are those of the first process in both
        ("fsdp2_value", "one_value", 5e-3),
        ("ddp_resumed", "fsdp2_rich", 1e-5),
        ("one_resumed", "tp_rich", 1e-5),
        ("both", "fsdp2_rich", 1e-5),
    ],
)
def test_losses_metrics_and_averages_are_those_of_one_process(folder, name, other, tolerance):
    mine, its = (read_json(folder / f"{each}.json") for each in (name, other))
    assert (count := len(mine["losses"])) >= 4
    assert mine["losses"] == pytest.approx(its["losses"][-count:], abs=tolerance)
    assert mine["metrics"] == pytest.approx(its["metrics"], abs=tolerance)
    mine, its = saved(folder, name), saved(folder, other)
    assert mine.get("averaging_state") == its.get("averaging_state")
    if "averaging_state" in its:
        for state in ("state_dict", "current_model_state"):
            torch.testing.assert_close(mine[state], its[state], rtol=0, atol=max(tolerance, 1e-5))
        weight = "network.head.weight"
        assert (its["state_dict"][weight] - its["current_model_state"][weight]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["fsdp2_rich", "tp_rich", "both"])
def test_one_process_reads_the_checkpoint(folder, name):
    mine, its = (read_json(folder / f"{name}{end}.json")["metrics"] for end in ("_test", ""))
    assert mine == pytest.approx({key: its[key] for key in mine}, abs=1e-6)


@pytest.mark.parametrize("name", ["fsdp2", "tp"])
def test_a_run_resumed_within_an_epoch_ends_with_the_same_bits(folder, name):
    """That of FSDP2 from parts that were written in the background, while the weights already
    changed.
    """
    mine, its = saved(folder, f"{name}_resumed"), saved(folder, f"{name}_rich")
    for state in ("state_dict", "current_model_state"):
        assert are_equal(mine[state], its[state])
