"""The callback, optimizer and networks of docs/experiments.md, as a person would write them."""

import re

from litlab.runs.folder import read_json
from tests.conftest import CONFIGS, ROOT


def test_callback_optimizer_and_residual_network(run, short, tmp_path, monkeypatch):
    page = (ROOT / "docs/experiments.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [code] = [block for block in blocks if "class StopAbove" in block]
    (tmp_path / "own_parts.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    import own_parts  # pyright: ignore[reportMissingImports] # noqa: F401

    config = CONFIGS / "mlp.yaml"
    own = """
        --model.network own_parts.ResidualMLP --model.network.width=16 --model.network.blocks=2
        --trainer.callbacks+=StopAbove --trainer.callbacks.limit=0.01 --model.optimizer=SignSGD
    """
    run("fit --config", config, *short(config), *own.split(), "--trainer.max_epochs=3").check()
    # The callback has ended it
    assert read_json(tmp_path / "lightning_logs/mlp/version_0/metrics.json")["epochs"] == 1
