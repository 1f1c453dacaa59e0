"""Both operators in the network of the text experiment: named in YAML and on the command line."""

import math
import re
from pathlib import Path

from litlab.testing import ModuleContract

CONFIG = Path(__file__).with_name("config.yaml")
TEXT = CONFIG.parents[3] / "configs/text.yaml"
NAMES = """
    --model.network.activation=examples.operators.squared_relu.SquaredReLU
    --model.network.attention=MultiHeadAttention --model.network.attention.implementation=math
    --model.network.attention.softmax=MaskedSoftmax
"""


class TestContract(ModuleContract):
    config = CONFIG
    settings = (
        "--data.dataset=csv",
        "--data.path={texts}",
        "--data.batch_size=16",
        "--model.network.embed_dim=32",
        "--model.members=1",
        "--model.optimizer.init_args.lr=0.01",
    )
    loss_at_start = math.log(4)
    overfit_steps = 30


def test_short_names_and_the_composition_in_a_run_of_before(run, short):
    """One network three times: the folder's config, names on the command line, and plain PyTorch
    in its place, which a run takes without being trained again.
    """
    small = [*short(CONFIG), "--model.members=1", "--model.network.embed_dim=16"]
    runs = (
        run("fit --config", CONFIG, *small),
        run("fit --config", TEXT, *small, *NAMES.split()),
        run("test --run=operators --model.network.attention.softmax=null"),
    )
    losses = {re.search(r"test/loss\W+([\d.]+)", done.check().out)[1] for done in runs}
    assert len(losses) == 1
