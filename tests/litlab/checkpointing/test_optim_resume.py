"""A killed run with Muon and stochastic weight averaging, and a schedule made of several, is resumed in every bit."""

import torch

from tests.litlab.checkpointing.resuming import Cell, Resuming
from tests.litlab.conftest import CONFIGS

OPTIMIZER = "{class_path: litlab.optim.Muon, init_args: {lr: 0.01, rest: sgd, rest_lr: 0.05}}"

SCHEDULE = """
  interval: step
  scheduler:
    class_path: Sequence
    init_args:
      schedulers:
        - {class_path: LinearLR, init_args: {start_factor: 0.1, total_iters: null}}
        - {class_path: CosineAnnealingLR}
      milestones: [0.25]
"""


def test_resumed_while_weights_are_averaged(images, tmp_path):
    def own(cell: Cell) -> list[str]:
        return [
            "--config", str(CONFIGS / "images.yaml"), "--data.dataset=folder", f"--data.path={images}",
            "--data.batch_size=22", f"--model.schedule={SCHEDULE}", f"--model.optimizer={OPTIMIZER}", "--ema=null",
            "--swa.start=0",
        ]  # fmt: skip

    resuming = Resuming("acme", tmp_path, own)
    cell = Cell("images", "kill", "inside")
    step, differs = resuming.interrupted(cell)
    saved = torch.load(tmp_path / str(cell) / "lightning_logs/run/version_0/checkpoints/last.ckpt", weights_only=True)
    assert (step, saved["averaging_state"]["n_averaged"]) == (5, 3)  # of the second epoch's; at the end of the run
    assert {group["method"] for group in saved["optimizer_states"][0]["param_groups"]} == {"muon", "sgd"}
    assert differs == []
