"""docs/python.md, from top to bottom."""

from pathlib import Path

import pytest
import torch

from tests.litlab.pages import run_blocks


@pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists", "ignore:.*does not have many workers")
def test_all_blocks_run(images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("photos").symlink_to(images)
    page = run_blocks("python.md")
    printed = capsys.readouterr().out
    assert page["images"].shape[1:] == (3, 32, 32)
    assert "epoch 2: " in printed
    assert page["best"].best_model_score > 0.5  # AUROC
    assert page["checkpoint"]["hyper_parameters"]["image_shape"] == (3, 32, 32)
    assert len(torch.cat(page["probabilities"])) == 50
    rows = Path("predictions.csv").read_text().splitlines()
    assert len(rows) == 51
    assert rows[0].startswith("file,prediction,probability")
