"""Strategies on 1, 2 or 4 GPUs, against one process on one of them: `make test-gpu`."""

import pytest
import torch
import yaml

from litlab.runs.folder import read_json
from tests.litlab.parallel import program

WORLD = max(size for size in (0, 1, 2, 4) if size <= torch.cuda.device_count())
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
VARIANTS = yaml.safe_load("""
plain: {}
clipped: {gradient_clip_val: 0.1, accumulate_grad_batches: 2, model: {foreach: true}}
bf16: {precision: bf16-mixed}
average: {average: ema, validated: true, offload: true}
parts: {parts: true}
""")
STRATEGIES = yaml.safe_load("""  # with the GPUs that each needs; one is a group of one process
fsdp2: [{strategy: fsdp2}, 1]
tp: [{strategy: tp}, 2]
both_offload: [{strategy: both, offload: true}, 4]
""")


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_metrics_are_those_of_one_process(tmp_path, variant):
    options = {"accelerator": "gpu", **VARIANTS[variant]}
    together = {
        name: {**kind, **options} for name, (kind, least) in STRATEGIES.items() if least <= WORLD
    }
    read = {f"{name}_read": {**options, "fitted": False, "resume": name} for name in together}
    for world, cases in ((1, {"one": options}), (WORLD, together), (1, read)):
        program.run(tmp_path, world, cases)

    tolerance = 2e-2 if variant == "bf16" else 1e-4
    one, *others = (read_json(tmp_path / f"{name}.json") for name in ("one", *together, *read))
    for name, other in zip((*together, *read), others, strict=True):
        loss = one["metrics"]["test/loss"]  # a class may change by rounding
        assert other["metrics"]["test/loss"] == pytest.approx(loss, abs=tolerance), name
        assert name in read or other["losses"] == pytest.approx(one["losses"], abs=tolerance), name
