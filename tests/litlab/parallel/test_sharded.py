"""FSDP2, tensor parallelism and both, in 2 to 4 processes, against one process and DDP."""

import json
from pathlib import Path

import pytest
import torch

from tests.litlab.parallel import program

DROPOUT = {"model": {"dropout": 0.2}}
AVERAGED = {
    "average": "ema",
    "model": {"optimizer": "SGD", "dropout": 0.2, "norm": True},
}  # AdamW would make much of rounding
MEAN = {"average": "swa", "model": {"norm": True, "optimizer": "SGD"}}
LONG = {"steps": 50}
EVALUATED = {"steps": 0, "resume": "one"}
CASES = {
    1: {
        "one": LONG,
        "one_dropout": DROPOUT,
        "one_clip": {"gradient_clip_val": 0.1},
        "one_value": {"gradient_clip_val": 0.001, "gradient_clip_algorithm": "value"},
        "one_ema": AVERAGED,
        "one_accumulated": {"accumulate_grad_batches": 2, "precision": "bf16-mixed"},
    },
    2: {
        "ddp2": {"strategy": "ddp", **LONG},
        "fsdp2_2": {"strategy": "fsdp2", **LONG},
        "tp2": {"strategy": "tp", **LONG},
        "tp2_dropout": {"strategy": "tp", **DROPOUT},
        "fsdp2_2_validated": {"strategy": "fsdp2", "validated": True},
        "offload2_validated": {"strategy": "fsdp2", "validated": True, "offload": True},
        "fsdp2_2_clip": {"strategy": "fsdp2", "gradient_clip_val": 0.1},
        "tp2_value": {"strategy": "tp", "gradient_clip_val": 0.001, "gradient_clip_algorithm": "value"},
        "ddp2_norm": {"strategy": "ddp", "model": {"norm": True, "optimizer": "SGD"}},
        "fsdp2_2_norm": {"strategy": "fsdp2", "model": {"norm": True, "optimizer": "SGD"}},
        "ddp2_half": {"strategy": "ddp", "model": {"norm": True, "optimizer": "SGD"}, "precision": "bf16-mixed"},
        "fsdp2_2_half": {"strategy": "fsdp2", "model": {"norm": True, "optimizer": "SGD"}, "precision": "bf16-mixed"},
        "fsdp2_2_accumulated": {"strategy": "fsdp2", "accumulate_grad_batches": 2, "precision": "bf16-mixed"},
        "fsdp2_2_six": {"strategy": "fsdp2", "steps": 6, **DROPOUT},
        "fsdp2_2_whole": {"strategy": "fsdp2", **DROPOUT},
        "fsdp2_2_resumed": {"strategy": "fsdp2", "resume": "fsdp2_2_six", **DROPOUT},
        "ddp2_resumed": {"strategy": "ddp", "resume": "fsdp2_2_six", **DROPOUT},
        "tp2_ema": {"strategy": "tp", **AVERAGED},
        "ddp2_ema": {"strategy": "ddp", **AVERAGED},
        "fsdp2_2_ema": {"strategy": "fsdp2", **AVERAGED},
        "fsdp2_2_ema_half": {"strategy": "fsdp2", "precision": "bf16-true", **AVERAGED},
        "fsdp2_2_ema_six": {"strategy": "fsdp2", "steps": 6, **AVERAGED},
        "fsdp2_2_ema_resumed": {"strategy": "fsdp2", "resume": "fsdp2_2_ema_six", **AVERAGED},
        "ddp2_swa": {"strategy": "ddp", **MEAN},
        "fsdp2_2_swa": {"strategy": "fsdp2", "offload": True, **MEAN},
        "tp2_six": {"strategy": "tp", "steps": 6, **DROPOUT},
        "tp2_resumed": {"strategy": "tp", "resume": "tp2_six", **DROPOUT},
    },
    3: {"ddp3_test": {"strategy": "ddp", **EVALUATED}, "fsdp2_3_test": {"strategy": "fsdp2", **EVALUATED}},
    4: {
        "both4": {"strategy": "both", **LONG},
        "both4_clip": {"strategy": "both", "gradient_clip_val": 0.1},
        "both4_ema_resumed": {"strategy": "both", "resume": "fsdp2_2_ema_six", **AVERAGED},
        "both4_resumed": {"strategy": "both", "resume": "fsdp2_2_six", **DROPOUT},
        "tp4_test": {"strategy": "tp", **EVALUATED},
    },
    0: {
        "one_resumed": {"resume": "tp2_six", **DROPOUT},
        **{f"{name}_test": {"steps": 0, "resume": name} for name in ("fsdp2_2", "tp2", "both4")},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    for world, cases in CASES.items():
        program.run(folder, world or 1, cases)
    return folder


def result(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


def saved(folder: Path, name: str) -> dict:
    return torch.load(folder / f"{name}.ckpt", weights_only=True)


def same(folder: Path, name: str, other: str, tolerance: float) -> None:
    mine, its = result(folder, name), result(folder, other)
    assert mine["losses"] == pytest.approx(its["losses"][-len(mine["losses"]) :], abs=tolerance)
    assert mine["metrics"] == pytest.approx(its["metrics"], abs=tolerance)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        *((name, "one") for name in ("ddp2", "fsdp2_2", "tp2", "both4")),
        *((name, "one_clip") for name in ("fsdp2_2_clip", "both4_clip")),
        ("tp2_value", "one_value"),
        ("tp2_dropout", "one_dropout"),  # processes that share layers drop the same values
        ("fsdp2_2_norm", "ddp2_norm"),  # the statistics are those of the first process in both
    ],
)
def test_losses_and_metrics_are_those_of_one_process(folder, name, other):
    same(folder, name, other, 2e-6)


@pytest.mark.parametrize("name", ["fsdp2_2_validated", "offload2_validated"])
def test_a_validation_may_come_first(folder, name):
    losses = result(folder, name)["losses"]
    assert losses == pytest.approx(result(folder, "one")["losses"][: len(losses)], abs=2e-6)


def test_accumulation_in_bfloat16_comes_close(folder):
    same(folder, "fsdp2_2_accumulated", "one_accumulated", 5e-3)


def test_batch_norm_keeps_its_precision_in_bfloat16(folder):
    losses = [result(folder, name)["losses"] for name in ("fsdp2_2_half", "ddp2_half")]
    assert losses[0] == pytest.approx(losses[1], abs=5e-3)


@pytest.mark.parametrize("name", ["ddp3_test", "fsdp2_3_test", "tp4_test"])
def test_evaluation_does_not_depend_on_the_processes(folder, name):
    """Though neither 37 nor 41 samples can be divided among them."""
    assert result(folder, name)["metrics"] == pytest.approx(result(folder, "one")["metrics"], abs=1e-6)


@pytest.mark.parametrize("name", ["fsdp2_2", "tp2", "both4"])
def test_one_process_reads_the_checkpoint(folder, name):
    assert result(folder, f"{name}_test")["metrics"] == pytest.approx(result(folder, name)["metrics"], abs=1e-6)


def test_a_run_resumed_within_an_epoch_ends_with_the_same_bits(folder):
    for resumed, whole in (("fsdp2_2_resumed", "fsdp2_2_whole"), ("tp2_resumed", "tp2_dropout")):
        mine, its = saved(folder, resumed), saved(folder, whole)
        for name, weight in its["state_dict"].items():
            assert torch.equal(mine["state_dict"][name], weight), name
        states = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (mine, its)]
        for number, state in states[1].items():
            assert all(torch.equal(states[0][number][name], value) for name, value in state.items())


@pytest.mark.parametrize(
    ("resumed", "whole"),
    [("ddp2_resumed", "fsdp2_2_whole"), ("both4_resumed", "fsdp2_2_whole"), ("one_resumed", "tp2_dropout")],
)
def test_another_strategy_continues_within_the_epoch(folder, resumed, whole):
    """As far as the data is shared by as many processes."""
    assert len(result(folder, resumed)["losses"]) == 6
    same(folder, resumed, whole, 1e-5)


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        ("tp2_ema", "one_ema", 2e-6),
        ("fsdp2_2_ema", "ddp2_ema", 2e-6),
        ("fsdp2_2_ema_resumed", "fsdp2_2_ema", 0),
        ("both4_ema_resumed", "fsdp2_2_ema", 2e-6),
        ("fsdp2_2_swa", "ddp2_swa", 2e-6),  # which measures batch norms with the average
    ],
)
def test_processes_average_their_parts_of_the_weights(folder, name, other, tolerance):
    same(folder, name, other, tolerance)
    mine, its = saved(folder, name), saved(folder, other)
    assert mine["averaging_state"] == its["averaging_state"]
    for state in ("state_dict", "current_model_state"):
        assert mine[state].keys() == its[state].keys()
        for weight, value in its[state].items():
            torch.testing.assert_close(mine[state][weight], value, rtol=0, atol=tolerance)
    weight = "network.head.weight"
    assert (its["state_dict"][weight] - its["current_model_state"][weight]).abs().max() > 1e-4


def test_weights_of_16_bits_are_averaged_in_32(folder):
    checkpoint = saved(folder, "fsdp2_2_ema_half")
    for state, kind in (("state_dict", torch.float32), ("current_model_state", torch.bfloat16)):
        assert checkpoint[state]["network.head.weight"].dtype == kind
