"""The callback, optimizer and networks of docs/experiments.md, as a person would write them."""

import json
import re

import pytest

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
    network = [
        "--model.network",
        "own_parts.ResidualMLP",
        "--model.network.width=16",
        "--model.network.blocks=2",
    ]
    own = [
        "--trainer.callbacks+=StopAbove",
        "--trainer.callbacks.limit=0.01",
        "--model.optimizer=SignSGD",
    ]
    done = run("fit", "--config", config, *short(config), *network, *own, "--trainer.max_epochs=3")
    assert done.code == 0, done.err
    folder = tmp_path / "lightning_logs/mlp/version_0"
    # The callback has ended it
    assert json.loads((folder / "metrics.json").read_text())["epochs"] == 1


def test_a_head_for_each_target_of_a_table(run, tmp_path):
    (tmp_path / "table.csv").write_text(
        "\n".join(["a,b,up,down", *(f"{i},{i % 7},{2 * i + 1},{-i}" for i in range(200))])
    )
    data = [
        "--data.dataset=csv",
        "--data.path=table.csv",
        "--data.target=[up, down]",
        "--data.batch_size=20",
    ]
    model = ["--model=Regressor", "--model.network=own_parts.TwoHeads", "--model.optimizer.lr=0.01"]
    flags = [
        "--trainer.max_epochs=4",
        "--trainer.log_every_n_steps=1",
        "--trainer.accelerator=cpu",
        "--ema=null",
    ]
    done = run("fit", "--config", CONFIGS / "tabular.yaml", *data, *model, *flags)
    assert done.code == 0, done.err
    test = json.loads((tmp_path / "lightning_logs/tabular/version_0/metrics.json").read_text())[
        "test"
    ]
    assert test["test/r2_up"] > 0.9
    assert test["test/r2_down"] > 0.9
