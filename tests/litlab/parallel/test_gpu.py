"""Strategies on GPUs, against one process on one of them: `make test-gpu`.

There are 1, 2 or 4 processes, as there are GPUs. With one, FSDP2 and the pipeline are a group of one process.
"""

import json
from pathlib import Path

import pytest
import torch

from tests.litlab.parallel import program

WORLD = max(size for size in (0, 1, 2, 4) if size <= torch.cuda.device_count())
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: test_sharded.py goes without one"),
]
ACCELERATOR = "gpu"
VARIANTS = {
    "plain": {},
    "clipped": {"gradient_clip_val": 0.1, "accumulate_grad_batches": 2},
    "foreach": {"model": {"foreach": True}},
    "bf16": {"precision": "bf16-mixed"},
    "average": {"average": "ema", "validated": True},
    "parts": {"parts": True},
}
STRATEGIES = {
    "fsdp2": {"strategy": "fsdp2"},
    "offload": {"strategy": "fsdp2", "offload": True},
    "pipeline": {"strategy": "pipeline"},
    "tp": {"strategy": "tp"},
    "tp_offload": {"strategy": "tp", "offload": True},
    "both": {"strategy": "both"},
    "both_offload": {"strategy": "both", "offload": True},
}
NEEDED = {"tp": 2, "tp_offload": 2, "both": 4, "both_offload": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    alone, together, after = {}, {}, {}
    for variant, options in VARIANTS.items():
        options = {"accelerator": ACCELERATOR, **options}
        alone[f"one_{variant}"] = options
        for name, strategy in STRATEGIES.items():
            if NEEDED.get(name, 1) <= WORLD:
                together[f"{name}_{variant}"] = {**strategy, **options}
                after[f"{name}_{variant}_test"] = {**options, "steps": 0, "resume": f"{name}_{variant}"}
    for world, cases in ((1, alone), (WORLD, together), (1, after)):
        program.run(folder, world, cases)
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_losses_and_metrics_are_those_of_one_process(folder, name, variant):
    if NEEDED.get(name, 1) > WORLD:
        pytest.skip(f"needs {NEEDED[name]} GPUs")
    mine, its, read = (
        json.loads((folder / f"{run}.json").read_text())
        for run in (f"{name}_{variant}", f"one_{variant}", f"{name}_{variant}_test")
    )
    tolerance = 2e-2 if variant == "bf16" else 1e-4
    assert len(mine["losses"]) >= 12
    assert mine["losses"] == pytest.approx(its["losses"], abs=tolerance)
    losses = [key for key in its["metrics"] if "loss" in key]  # a class may change by rounding
    assert losses
    for key in losses:
        assert mine["metrics"][key] == pytest.approx(its["metrics"][key], abs=tolerance)
        assert read["metrics"][key] == pytest.approx(mine["metrics"][key], abs=tolerance)  # of the checkpoint
