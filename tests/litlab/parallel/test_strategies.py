"""DDP, FSDP2, tensor parallelism, both, and the pipeline, in 2 or 4 processes, against one process.

Neither 21 nor 17 samples of validation and test can be divided among the processes.
"""

import json
from pathlib import Path

import pytest
import torch

from tests.litlab.parallel import program

PIPE, FSDP2, TP, BOTH, DDP = ({"strategy": name} for name in ("pipeline", "fsdp2", "tp", "both", "ddp"))
SGD = {"optimizer": "SGD", "lr": 0.1}  # AdamW makes much of rounding
NORM = {"model": {**SGD, "norm": True}}
SAME = {"average": "ema", "accumulate_grad_batches": 2, "gradient_clip_val": 0.1, "model": SGD}
RICH = {**SAME, "model": {**SGD, "dropout": 0.2}}
HALF_RICH = {**RICH, "precision": "bf16-mixed"}
VALUE = {"precision": "bf16-mixed", "gradient_clip_val": 0.001, "gradient_clip_algorithm": "value", "model": SGD}
FROZEN = {"freeze": {"network.blocks.3": 0, "*": None}, "gradient_clip_val": 0.1}  # other stages have no gradients
THAWED = {"freeze": {"network.blocks.*": 1}}
SWA = {"average": "swa", **NORM}


def name_resumed(name: str, case: dict) -> dict[str, dict]:
    """Return a run, and its continuation from within the second epoch."""
    return {f"{name}_rich": case, f"{name}_resumed": {**case, "resume": f"{name}_rich-4"}}


RUNS = [  # one after the other, with the number of processes
    (1, {
        "one": {}, "one_same": SAME, "one_rich": RICH, "one_value": VALUE,
        "one_frozen": FROZEN, "one_thawed": THAWED, "one_pipe_rich": {**PIPE, **HALF_RICH},
    }),
    (2, {
        "ddp": DDP, "ddp_rich": {**DDP, **RICH}, "ddp_swa": {**DDP, **SWA}, "ddp_thawed": {**DDP, **THAWED},
        "fsdp2": {**FSDP2, "validated": True},
        "fsdp2_swa": {**FSDP2, "offload": True, "validated": True, **SWA},
        "fsdp2_value": {**FSDP2, **VALUE},
        **name_resumed("fsdp2", {**FSDP2, **RICH}),
        "ddp_resumed": {**DDP, "resume": "fsdp2_rich-4", **RICH},
        "tp": TP, "tp_frozen": {**TP, **FROZEN}, **name_resumed("tp", {**TP, **RICH}),
        "pipe": PIPE, "pipe_frozen": {**PIPE, **FROZEN}, "pipe_swa": {**PIPE, **SWA},
        **name_resumed("pipe", {**PIPE, **HALF_RICH}),
    }),
    (4, {"both": {**BOTH, **SAME}}),
    (1, {
        "one_resumed": {"resume": "tp_rich-4", **RICH},
        **{f"{name}_test": {"fitted": False, "resume": name} for name in ("fsdp2", "tp", "both", "pipe")},
        "pipe_swa_test": {"fitted": False, "resume": "pipe_swa", **NORM},
    }),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(make_once) -> Path:
    def fill(folder: Path) -> None:
        for world, cases in RUNS:
            program.run(folder, world, cases)

    return make_once("strategies", fill)


def result(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


def saved(folder: Path, name: str) -> dict:
    return torch.load(folder / f"{name}.ckpt", weights_only=True)


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        *((name, "one", 2e-6) for name in ("ddp", "fsdp2", "tp", "pipe")),
        ("both", "one_same", 2e-6),
        ("tp_rich", "one_rich", 2e-6),  # processes that share layers drop the same values
        ("fsdp2_rich", "ddp_rich", 2e-6),
        ("pipe_rich", "one_pipe_rich", 2e-6),  # in parts in one process, too: the same values are dropped
        *((name, "one_frozen", 2e-6) for name in ("tp_frozen", "pipe_frozen")),
        ("ddp_thawed", "one_thawed", 2e-6),
        ("fsdp2_swa", "ddp_swa", 2e-6),  # the statistics are those of the first process in both
        ("fsdp2_value", "one_value", 5e-3),
        ("ddp_resumed", "fsdp2_rich", 1e-5),
        ("one_resumed", "tp_rich", 1e-5),
    ],
)
def test_losses_metrics_and_averages_are_those_of_one_process(folder, name, other, tolerance):
    mine, its = result(folder, name), result(folder, other)
    assert len(mine["losses"]) >= 4
    assert mine["losses"] == pytest.approx(its["losses"][-len(mine["losses"]) :], abs=tolerance)
    assert mine["metrics"] == pytest.approx(its["metrics"], abs=tolerance)
    mine, its = saved(folder, name), saved(folder, other)
    assert mine.get("averaging_state") == its.get("averaging_state")
    if "averaging_state" in its:
        for state in ("state_dict", "current_model_state"):
            assert mine[state].keys() == its[state].keys()
            torch.testing.assert_close(mine[state], its[state], rtol=0, atol=max(tolerance, 1e-5))
        weight = "network.head.weight"
        assert (its["state_dict"][weight] - its["current_model_state"][weight]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["fsdp2", "tp", "both", "pipe", "pipe_swa"])
def test_one_process_reads_the_checkpoint(folder, name):
    mine, its = (result(folder, f"{name}{suffix}")["metrics"] for suffix in ("_test", ""))
    assert mine == pytest.approx({key: its[key] for key in mine}, abs=1e-6)


@pytest.mark.parametrize("name", ["fsdp2", "tp", "pipe"])
def test_a_run_resumed_within_an_epoch_ends_with_the_same_bits(folder, name):
    mine, its = saved(folder, f"{name}_resumed"), saved(folder, f"{name}_rich")
    for state in ("state_dict", "current_model_state"):
        assert mine[state].keys() == its[state].keys()
        for weight, value in its[state].items():
            assert torch.equal(mine[state][weight], value), weight
