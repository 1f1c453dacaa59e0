"""The callback, optimizer and networks of docs/experiments.md, as a person would write them."""

import re

import pytest

from litlab.runs.folder import read_json
from tests.conftest import CONFIGS, ROOT


@pytest.fixture(scope="module", autouse=True)
def _mine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/experiments.md").read_text(), re.DOTALL
    )
    [code] = [block for block in blocks if "class StopAbove" in block]
    (folder / "own_parts.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        import own_parts  # pyright: ignore[reportMissingImports] # noqa: F401

        yield


def test_callback_optimizer_and_residual_network(run, short, tmp_path):
    config = CONFIGS / "mlp.yaml"
    own = """
        --model.network own_parts.ResidualMLP --model.network.width=16 --model.network.blocks=2
        --trainer.callbacks+=StopAbove --trainer.callbacks.limit=0.01 --model.optimizer=SignSGD
    """
    run("fit --config", config, *short(config), *own.split(), "--trainer.max_epochs=3").check()
    # The callback has ended it
    assert read_json(tmp_path / "lightning_logs/mlp/version_0/metrics.json")["epochs"] == 1
