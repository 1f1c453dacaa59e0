"""Runs with training techniques that are killed within an epoch and resumed: exact in every bit.

pytest -k technique_resume -m matrix      each technique by itself
"""

import pytest

from litlab.checkpointing.io import load_torch_file
from tests.litlab.checkpointing.resuming import EPOCHS, Cell, Resuming
from tests.litlab.conftest import CONFIGS

INTERRUPT = "{class_path: tests.litlab.checkpointing.interrupting.Interrupt}"
BY_EPOCH = "{class_path: GradientAccumulationScheduler, init_args: {scheduling: {0: 1, 1: 2, 2: 4}}}"
EVERY_BATCH = "--trainer.accumulate_grad_batches=1"
TECHNIQUES = {
    "8-bit AdamW": ["--model.optimizer=torchao.optim.AdamW8bit", "--model.optimizer.lr=0.01", "--model.width=128"],
    "Muon": ["--model.optimizer={class_path: litlab.optim.Muon, init_args: {lr: 0.01, rest: sgd, rest_lr: 0.05}}"],
    "in the backward pass": [EVERY_BATCH, "--nan_guard=null", "--trainer.callbacks+=OptimizerInBackward"],
    "accumulation by epoch": [EVERY_BATCH, f"--trainer.callbacks=[{INTERRUPT}, {BY_EPOCH}]"],
    "mixup and cutmix": ["--model.mixup=0.2", "--model.cutmix=1.0"],
    "bfloat16": ["--trainer.precision=bf16-true"],
    "channels last": ["--channels_last=true"],
    "activation checkpointing": ["--activation_checkpointing.blocks=[network.1, network.5]"],
    "adaptive clipping": ["--agc.factor=0.1", "--grad_norms={}"],
    "classes drawn evenly": ["--data.balance=even"],
    "an ensemble": ["--model.members=2"],
    "averaged": ["--ema=null", "--swa.start=0"],
    "learning rate found": ["--trainer.callbacks+=LRFinder"],
    "compiled": ["--compile.mode=default"],
    "compiled, of one shape": ["--compile.mode=default", "--compile.backend=aot_eager", "--compile.dynamic=false"],
}
APART = {
    "an ensemble",
    "8-bit AdamW",
    "in the backward pass",
    "bfloat16",
    "compiled",
    "compiled, of one shape",
}


@pytest.fixture(scope="module")
def resuming(images, tmp_path_factory) -> Resuming:
    def own(cell: Cell) -> list[str]:
        data = ["--data.dataset=folder", f"--data.path={images}", f"--data.batch_size={22 // cell.ranks}"]
        return ["--config", str(CONFIGS / "images.yaml"), *data]

    def over(cell: Cell) -> list[str]:
        return [flag for name in cell.experiment.split(" + ") for flag in TECHNIQUES[name]]

    return Resuming("auks", tmp_path_factory.mktemp("resuming"), own, over)


def test_techniques_that_go_together(resuming):
    cell = Cell(" + ".join(name for name in TECHNIQUES if name not in APART), "kill", "inside")
    assert resuming.interrupted(cell)[1] == []
    saved = load_torch_file(resuming.folder / str(cell) / "lightning_logs/run/version_0/checkpoints/last.ckpt")
    assert saved["averaging_state"]["n_averaged"] == EPOCHS
    assert {group["method"] for group in saved["optimizer_states"][0]["param_groups"]} == {"muon", "sgd"}
    assert saved["callbacks"]["LRFinder"]["lr"] != 0.01


@pytest.mark.matrix
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_each_by_itself(resuming, technique):
    if technique == "8-bit AdamW":
        pytest.importorskip("torchao")
    assert resuming.interrupted(Cell(technique, "kill", "inside"))[1] == []
