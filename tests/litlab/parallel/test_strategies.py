"""DDP, FSDP2, tensor parallelism, both, and the pipeline, in 2 to 4 processes, against one process."""

import json
from pathlib import Path

import pytest
import torch

from tests.litlab.parallel import program

PIPE, FSDP2, TP, BOTH, DDP = ({"strategy": name} for name in ("pipeline", "fsdp2", "tp", "both", "ddp"))
SIX, LONG, EVALUATED = {"steps": 6}, {"steps": 50}, {"steps": 0, "resume": "one"}
DROPOUT, SGD, NORM = ({"model": model} for model in ({"dropout": 0.2}, {"optimizer": "SGD"}, {"norm": True}))
FROZEN = {"frozen": True}
CLIP, VALUE = {"gradient_clip_val": 0.1}, {"gradient_clip_val": 0.001, "gradient_clip_algorithm": "value"}
HALF = {"accumulate_grad_batches": 2, "precision": "bf16-mixed"}
HALF_NORM = {"precision": "bf16-mixed", "model": {"norm": True, "optimizer": "SGD"}}
EMA = {"average": "ema", "model": {"optimizer": "SGD", "dropout": 0.2, "norm": True}}  # AdamW makes much of rounding
SWA = {"average": "swa", "model": {"norm": True, "optimizer": "SGD"}}
PIPE_SWA = {**PIPE, "average": "swa", "model": {"norm": "first", "optimizer": "SGD"}}  # one stage has no batch norm
PIPE_EMA = {**PIPE, "average": "ema", **SGD}
PIPE_CLIP = {**SIX, **CLIP, "accumulate_grad_batches": 2, **SGD}

CASES = {
    1: {
        "one": LONG,
        "one_dropout": DROPOUT,
        "one_clip": CLIP,
        "one_value": VALUE,
        "one_ema": EMA,
        "one_half": HALF,
        "one_frozen": FROZEN,
        "one_pipe_clip": PIPE_CLIP,
        "one_pipe_ema": {**PIPE_EMA, "strategy": "auto"},
        "one_pipe_half": {**PIPE, **HALF},
        "one_pipe_dropout": {**PIPE, **DROPOUT},
    },
    2: {
        "ddp": {**DDP, **LONG},
        "ddp_norm": {**DDP, **NORM},
        "ddp_half_norm": {**DDP, **HALF_NORM},
        "ddp_ema": {**DDP, **EMA},
        "ddp_swa": {**DDP, **SWA},
        "fsdp2": {**FSDP2, **LONG},
        "fsdp2_validated": {**FSDP2, "validated": True},
        "offload_validated": {**FSDP2, "validated": True, "offload": True},
        "fsdp2_clip": {**FSDP2, **CLIP},
        "fsdp2_norm": {**FSDP2, **NORM},
        "fsdp2_half": {**FSDP2, **HALF},
        "fsdp2_half_norm": {**FSDP2, **HALF_NORM},
        "fsdp2_six": {**FSDP2, **SIX, **DROPOUT},
        "fsdp2_whole": {**FSDP2, **DROPOUT},
        "fsdp2_resumed": {**FSDP2, "resume": "fsdp2_six", **DROPOUT},
        "ddp_resumed": {**DDP, "resume": "fsdp2_six", **DROPOUT},
        "fsdp2_ema": {**FSDP2, **EMA},
        "fsdp2_ema_half": {**FSDP2, "precision": "bf16-true", **EMA},
        "fsdp2_ema_six": {**FSDP2, **SIX, **EMA},
        "fsdp2_ema_resumed": {**FSDP2, "resume": "fsdp2_ema_six", **EMA},
        "fsdp2_swa": {**FSDP2, "offload": True, **SWA},
        "tp": {**TP, **LONG},
        "tp_value": {**TP, **VALUE},
        "tp_frozen": {**TP, **FROZEN},
        "tp_six": {**TP, **SIX, **DROPOUT},
        "tp_whole": {**TP, **DROPOUT},
        "tp_resumed": {**TP, "resume": "tp_six", **DROPOUT},
        "tp_ema": {**TP, **EMA},
        "pipe": {**PIPE, **LONG},
        "pipe_clip": {**PIPE, **PIPE_CLIP},
        "pipe_half": {**PIPE, **HALF},
        "pipe_frozen": {**PIPE, **FROZEN},
        "pipe_norm": {**PIPE, "steps": 3, **NORM},
        "pipe_six": {**PIPE, **SIX, **DROPOUT},
        "pipe_whole": {**PIPE, **DROPOUT},
        "pipe_resumed": {**PIPE, "resume": "pipe_six", **DROPOUT},
        "pipe_ema_six": {**PIPE_EMA, **SIX},
        "pipe_ema": {**PIPE_EMA, "resume": "pipe_ema_six"},
        "pipe_swa": PIPE_SWA,
        "pipe_plain_six": {**PIPE, **SIX},
    },
    3: {"ddp_test": {**DDP, **EVALUATED}, "fsdp2_3_test": {**FSDP2, **EVALUATED}},
    4: {
        "both": {**BOTH, **LONG},
        "both_clip": {**BOTH, **CLIP},
        "both_resumed": {**BOTH, "resume": "fsdp2_six", **DROPOUT},
        "both_ema_resumed": {**BOTH, "resume": "fsdp2_ema_six", **EMA},
        "tp_4_test": {**TP, **EVALUATED},
        "pipe4": {**PIPE, **LONG},
        "pipe4_resumed": {**PIPE, "resume": "pipe_plain_six"},
    },
    0: {
        "one_tp_resumed": {"resume": "tp_six", **DROPOUT},
        "one_pipe_resumed": {"resume": "pipe_plain_six"},
        **{f"{name}_test": {"steps": 0, "resume": name} for name in ("fsdp2", "tp", "both", "pipe")},
        "pipe_norm_test": {"steps": 0, "resume": "pipe_norm", **NORM},
        "pipe_swa_test": {"steps": 0, "resume": "pipe_swa", "model": PIPE_SWA["model"]},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("strategies")
    for world, cases in CASES.items():
        program.run(folder, world or 1, cases)
    return folder


def result(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


def saved(folder: Path, name: str) -> dict:
    return torch.load(folder / f"{name}.ckpt", weights_only=True)


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        *((name, "one", 2e-6) for name in ("ddp", "fsdp2", "tp", "both", "pipe", "pipe4")),
        *((name, "one_clip", 2e-6) for name in ("fsdp2_clip", "both_clip")),
        ("tp_value", "one_value", 2e-6),
        ("tp_whole", "one_dropout", 2e-6),  # processes that share layers drop the same values
        *((name, "one_frozen", 2e-6) for name in ("tp_frozen", "pipe_frozen")),  # where one stage has no gradients
        ("fsdp2_norm", "ddp_norm", 2e-6),  # the statistics are those of the first process in both
        ("fsdp2_half", "one_half", 5e-3),
        ("fsdp2_half_norm", "ddp_half_norm", 5e-3),
        ("pipe_clip", "one_pipe_clip", 1e-6),
        ("pipe_half", "one_pipe_half", 0),
        ("pipe_whole", "one_pipe_dropout", 0),  # in parts in one process, too: the same values are dropped
        # Another strategy continues within the epoch, as far as the data is shared by as many processes.
        *((name, "fsdp2_whole", 1e-5) for name in ("ddp_resumed", "both_resumed")),
        ("one_tp_resumed", "tp_whole", 1e-5),
        ("pipe4_resumed", "one_pipe_resumed", 1e-6),
    ],
)
def test_losses_and_metrics_are_those_of_one_process(folder, name, other, tolerance):
    mine, its = result(folder, name), result(folder, other)
    assert len(mine["losses"]) >= 6
    assert mine["losses"] == pytest.approx(its["losses"][-len(mine["losses"]) :], abs=tolerance)
    assert mine["metrics"] == pytest.approx(its["metrics"], abs=tolerance)


@pytest.mark.parametrize("name", ["fsdp2_validated", "offload_validated"])
def test_a_validation_may_come_first(folder, name):
    losses = result(folder, name)["losses"]
    assert losses == pytest.approx(result(folder, "one")["losses"][: len(losses)], abs=2e-6)


@pytest.mark.parametrize("name", ["ddp", "fsdp2_3", "tp_4"])
def test_evaluation_does_not_depend_on_the_processes(folder, name):
    """Though neither 37 nor 41 samples can be divided among them."""
    assert result(folder, f"{name}_test")["metrics"] == pytest.approx(result(folder, "one")["metrics"], abs=1e-6)


@pytest.mark.parametrize("name", ["fsdp2", "tp", "both", "pipe", "pipe_norm", "pipe_swa"])
def test_one_process_reads_the_checkpoint(folder, name):
    assert result(folder, f"{name}_test")["metrics"] == pytest.approx(result(folder, name)["metrics"], abs=1e-6)


@pytest.mark.parametrize("name", ["fsdp2", "tp", "pipe"])
def test_a_run_resumed_within_an_epoch_ends_with_the_same_bits(folder, name):
    mine, its = saved(folder, f"{name}_resumed"), saved(folder, f"{name}_whole")
    assert mine["state_dict"].keys() == its["state_dict"].keys()
    for weight, value in its["state_dict"].items():
        assert torch.equal(mine["state_dict"][weight], value), weight
    mine_states, its_states = (checkpoint["optimizer_states"][0]["state"] for checkpoint in (mine, its))
    assert mine_states.keys() == its_states.keys() == set(range(len(its["state_dict"])))  # all weights
    for number, state in its_states.items():
        assert all(torch.equal(mine_states[number][name], value) for name, value in state.items())


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        ("tp_ema", "one_ema", 2e-6),
        ("pipe_ema", "one_pipe_ema", 2e-6),
        ("fsdp2_ema", "ddp_ema", 2e-6),
        ("fsdp2_ema_resumed", "fsdp2_ema", 0),
        ("both_ema_resumed", "fsdp2_ema", 2e-6),
        ("fsdp2_swa", "ddp_swa", 2e-6),  # which measures batch norms with the average
    ],
)
def test_processes_average_their_parts_of_the_weights(folder, name, other, tolerance):
    test_losses_and_metrics_are_those_of_one_process(folder, name, other, tolerance)
    mine, its = saved(folder, name), saved(folder, other)
    assert mine["averaging_state"] == its["averaging_state"]
    for state in ("state_dict", "current_model_state"):
        assert mine[state].keys() == its[state].keys()
        for weight, value in its[state].items():
            torch.testing.assert_close(mine[state][weight], value, rtol=0, atol=tolerance)
    weight = "network.head.weight"
    assert (its["state_dict"][weight] - its["current_model_state"][weight]).abs().max() > 1e-4


def test_weights_of_16_bits_are_averaged_in_32(folder):
    checkpoint = saved(folder, "fsdp2_ema_half")
    for state, kind in (("state_dict", torch.float32), ("current_model_state", torch.bfloat16)):
        assert checkpoint[state]["network.head.weight"].dtype == kind
