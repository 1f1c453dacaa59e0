"""docs/python.md, from top to bottom."""

import re
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings(
    "ignore:.*Checkpoint directory .* exists", "ignore:.*does not have many workers"
)
def test_all_blocks_run(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("photos").symlink_to(images)
    page = {"__name__": "page"}
    exec("\n".join(BLOCK.findall((ROOT / "docs/python.md").read_text())), page)
    assert page["best"].best_model_score > 0.5  # AUROC
    assert page["checkpoint"]["hyper_parameters"]["image_shape"] == (3, 32, 32)
    assert len(torch.cat(page["probabilities"])) == 50
    assert len(Path("predictions.csv").read_text().splitlines()) == 51
