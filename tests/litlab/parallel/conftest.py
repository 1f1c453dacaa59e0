"""Fits by DDP, FSDP2, tensor parallelism, and both, in 2 or 4 processes, and by one process."""

from pathlib import Path

import pytest

from tests.litlab.parallel import program

FSDP2, TP, BOTH, DDP = ({"strategy": name} for name in ("fsdp2", "tp", "both", "ddp"))
SGD = {"optimizer": "SGD", "lr": 0.1}  # AdamW makes much of rounding
NORM = {"model": {**SGD, "norm": True}}
RICH = {
    "average": "ema", "accumulate_grad_batches": 2, "gradient_clip_val": 0.1,
    "model": {**SGD, "dropout": 0.2},
}  # fmt: skip
VALUE = {
    "precision": "bf16-mixed",
    "gradient_clip_val": 0.001,
    "gradient_clip_algorithm": "value",
    "model": SGD,
}
# The first rule counts: most weights have no gradients
FROZEN = {"freeze": {"network.blocks.3": 0, "*": None}, "gradient_clip_val": 0.1}
THAWED = {"freeze": {"network.blocks.*": 1}, "gradient_clip_val": 0.1}
SWA = {"average": "swa", **NORM}


def name_resumed(name: str, case: dict) -> dict[str, dict]:
    """Return a run, and its continuation from within the second epoch."""
    return {f"{name}_rich": case, f"{name}_resumed": {**case, "resume": f"{name}_rich-4"}}


RUNS = [  # one after the other, with the number of processes
    (1, {"one_frozen": FROZEN, "one_thawed": THAWED, "one_rich": RICH, "one_value": VALUE}),
    (
        2,
        {
            "ddp_thawed": {**DDP, **THAWED},
            "ddp_rich": {**DDP, **RICH},
            "ddp_swa": {**DDP, **SWA},
            **name_resumed("fsdp2", {**FSDP2, **RICH, "parts": True}),
            "fsdp2_swa": {**FSDP2, "offload": True, "validated": True, **SWA},
            "fsdp2_value": {**FSDP2, **VALUE},
            "ddp_resumed": {**DDP, "resume": "fsdp2_rich-4", **RICH},
            **name_resumed("tp", {**TP, **RICH}),
            "tp_frozen": {**TP, **FROZEN},
        },
    ),
    (4, {"both": {**BOTH, "resume": "fsdp2_rich-4", **RICH, "parts": True}}),
    (
        1,
        {
            "one_resumed": {"resume": "tp_rich-4", **RICH},
            **{
                f"{name}_test": {"fitted": False, "resume": name}
                for name in ("fsdp2_rich", "tp_rich", "both")
            },
        },
    ),
]


@pytest.fixture(scope="module")
def folder(make_once) -> Path:
    def fill(folder: Path) -> None:
        for world, cases in RUNS:
            program.run(folder, world, cases)

    return make_once("strategies", fill)
