"""Both operators in the network of the text experiment: named in YAML and on the command line."""

import math
import re
from pathlib import Path

from litlab.testing import ModuleContract

CONFIG = Path(__file__).with_name("config.yaml")
TEXT = CONFIG.parents[3] / "configs/text.yaml"
NAMES = (
    "--model.network.activation=examples.operators.squared_relu.SquaredReLU",
    "--model.network.attention=MultiHeadAttention",
    "--model.network.attention.implementation=math",
    "--model.network.attention.softmax=MaskedSoftmax",
)


class TestContract(ModuleContract):
    config = CONFIG
    settings = (
        "--data.dataset=csv",
        "--data.path={texts}",
        "--data.batch_size=16",
        "--model.network.embed_dim=32",
        "--model.optimizer.init_args.lr=0.01",
    )
    loss_at_start = 3 * math.log(4)  # the sum of three networks
    overfit_steps = 30


def test_short_names_and_the_composition_in_a_run_of_before(run, short):
    """One network three times: the folder's config, names on the command line, and plain PyTorch
    in its place, which a run takes without being trained again.
    """
    losses = []
    for arguments in (
        ["fit", "--config", CONFIG, *short(CONFIG)],
        ["fit", "--config", TEXT, *short(TEXT), *NAMES],
        ["test", "--run=operators", "--model.network.attention.softmax=null"],
    ):
        done = run(*arguments)
        assert done.code == 0, done.err
        losses += re.findall(r"test/loss\W+([\d.]+)", done.out)
    assert len(losses) == 3
    assert len(set(losses)) == 1, losses
