"""Functions such as ``timm.create_model``, whose further arguments only their call can tell."""

from typing import Any

import pytest
from jsonargparse import ArgumentParser
from torch import nn

from litlab.cli.config import ExperimentParser, name_unknown
from litlab.cli.run_errors import describe_error
from litlab.errors import UserError, building

KINDS = {"linear": nn.Linear, "conv": nn.Conv2d}


def make_layer(kind: str, width: int = 2, **settings: Any) -> nn.Module:
    """Make a layer as timm makes models."""
    return KINDS[kind](3, width, **settings)


def make_linear(width: int = 2, **settings: Any) -> nn.Module:
    """Make a layer of which the parser knows all arguments."""
    return nn.Linear(3, width, **settings)


def parse(path: str, *flags: str) -> Any:
    parser = ExperimentParser()
    parser.add_argument("--network", type=nn.Module)
    return parser, parser.parse_args([f"--network={path}", *flags])


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        (["--network.kind=conv", "--network.kernel_size=5"], (5, 5)),
        (["--network.kind=conv", "--network.kernel_size=[1, 3]"], (1, 3)),
        (["--network.kernel_size=1", "--network.init_args.kind=conv"], (1, 1)),
        (
            ["--network.kind=conv", "--network.dict_kwargs.kernel_size=7"],
            (7, 7),
        ),
    ],
)
def test_they_get_them_from_every_parser(flags, value):
    parser, config = parse(f"{__name__}.make_layer", "--network.width=4", *flags)
    layer = parser.instantiate(config).network
    assert (layer.kernel_size, layer.out_channels) == (value, 4)

    # As a checkpoint keeps it, for Lightning's own parser
    block = config.network.as_dict()
    name_unknown(block)
    plain = ArgumentParser(exit_on_error=False)
    plain.add_argument("--network", type=nn.Module)
    again = plain.instantiate(plain.parse_object({"network": block})).network
    assert (again.kernel_size, again.out_channels) == (value, 4)


def test_one_that_the_call_refuses_is_named():
    parser, config = parse(
        f"{__name__}.make_layer",
        "--network.kind=conv",
        "--network.kernel_size=5",
        "--network.gruops=3",
    )
    with pytest.raises(TypeError) as caught, building("model"):
        parser.instantiate(config)
    line = (
        "model: Conv2d has no 'gruops'; correct it, or leave it out; LITLAB_TRACEBACK=1 shows where"
    )
    assert describe_error(caught.value) == line


@pytest.mark.parametrize("path", [f"{__name__}.make_linear", "torch.nn.Identity", "torch.nn.Tanh"])
def test_what_the_parser_can_tell_is_checked(path):
    with pytest.raises(UserError, match="kernel_size"):
        parse(path, "--network.kernel_size=5")
    block = {"class_path": path, "init_args": {}}
    name_unknown(block)
    assert block == {"class_path": path, "init_args": {}}
