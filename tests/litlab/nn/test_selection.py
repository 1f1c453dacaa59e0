"""One pattern language for modules and parameters, and one definition of blocks."""

from functools import partial

import pytest
from torch import nn

from litlab.errors import UserError
from litlab.nn.selection import find_blocks, select_modules
from litlab.parallel import ParallelPlan


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 4)
        attention = partial(nn.MultiheadAttention, 4, 1)
        self.layers = nn.Sequential(attention(), nn.ReLU(), attention())
        self.heads = nn.ModuleList([nn.ModuleList([nn.Linear(4, 1)]), nn.Linear(4, 2)])


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["layers.0.*", "layers.2"], ["layers.0.out_proj", "layers.2"]),
        (["*proj", "stem"], ["stem", "layers.0.out_proj", "layers.2.out_proj"]),
        ("heads", ["heads.0.0", "heads.1"]),  # lists are never called
    ],
)
def test_modules_are_selected_once_where_they_are_called(patterns, names):
    network = Net()
    assert select_modules(network, patterns, "key") == {
        name: network.get_submodule(name) for name in names
    }


def test_a_pattern_that_matches_nothing_is_refused():
    line = "^key: 'layer' matches no module of Net; did you mean 'layers'"
    with pytest.raises(UserError, match=line):
        select_modules(Net(), ["stem", "layer"], "key")


def test_blocks_are_those_of_the_plan_or_the_children_of_lists():
    network = Net()
    assert list(find_blocks(network)) == ["layers.0", "layers.2", "heads.0.0", "heads.1"]
    assert list(find_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Net()))) == ["0", "2"]
    assert find_blocks(nn.Linear(2, 2)) == {}
    network.parallel_plan = ParallelPlan(blocks=["layers.*", "stem"])  # pyright: ignore[reportArgumentType]
    assert list(find_blocks(network)) == ["stem", "layers.0", "layers.1", "layers.2"]
