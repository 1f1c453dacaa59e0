"""What `fit --plan` says to add exists."""

import pytest

from litlab.cli.config import Command
from litlab.commands.plan.plan import Devices, Layout
from tests.conftest import CONFIGS


@pytest.mark.parametrize("layout", [Layout(), Layout("fsdp2"), Layout("fsdp2", 2), Layout("pipeline")], ids=str)
def test_what_it_says_to_add_is_there(layout, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    flags = layout.flags(Devices(1, 2, 2**30))
    assert Command(["fit", "--config=configs/text.yaml", *flags]).config.trainer.strategy != "auto"
