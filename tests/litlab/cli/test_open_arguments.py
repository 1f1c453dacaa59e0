"""Functions such as ``timm.create_model``, whose further arguments only their call can tell."""

import json
from typing import Any

import pytest
from jsonargparse import ArgumentParser
from torch import nn

from litlab.cli.config import ExperimentParser
from litlab.cli.run_errors import explain_error
from litlab.errors import UserError, building

KINDS = {"linear": nn.Linear, "conv": nn.Conv2d}


def make_layer(kind: str, width: int = 2, **settings: Any) -> nn.Module:
    """Make a layer as timm makes models."""
    return KINDS[kind](3, width, **settings)


MAKE_LAYER = f"{__name__}.make_layer"


def parse(network: str, *arguments: str) -> Any:
    parser = ExperimentParser()
    parser.add_argument("--model", type=nn.Module | None)
    model = ["--model=tests.litlab.callbacks.tiny.Tiny", f"--model.network={network}"]
    flags = [f"--model.network.{argument}" for argument in arguments]
    return parser, parser.parse_args([*model, *flags])


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("kind=conv kernel_size=5", (5, 5)),
        ("kernel_size=1 init_args.kind=conv", (1, 1)),
        ("kind=conv dict_kwargs.kernel_size=7 kernel_size=3", (3, 3)),
    ],
)
def test_every_parser_reads_them_and_the_last_one_counts(arguments, value):
    parser, config = parse(MAKE_LAYER, "width=4", *arguments.split())
    layer = parser.instantiate(config).model.network
    assert (layer.kernel_size, layer.out_channels) == (value, 4)

    # Such as Lightning's own, from a checkpoint
    plain = ArgumentParser(exit_on_error=False)
    plain.add_argument("--network", type=nn.Module)
    block = config.model.init_args.network.as_dict()
    again = plain.instantiate(plain.parse_object({"network": block})).network
    assert (again.kernel_size, again.out_channels) == (value, 4)


def test_one_that_the_call_refuses_is_named():
    parser, config = parse(MAKE_LAYER, "kind=conv", "kernel_size=5", "gruops=3")
    with pytest.raises(ValueError, match="gruops") as caught, building("model"):
        parser.instantiate(config)
    line = "model: Conv2d has no 'gruops'; correct it, or leave it out"
    assert str(explain_error(caught.value)).startswith(line)


@pytest.mark.parametrize("path", ["torchvision.models.resnet18", "torch.nn.Identity"])
def test_what_the_parser_can_tell_is_checked(path):
    with pytest.raises(UserError, match="kernel_size"):
        parse(path, "kernel_size=5")


def test_in_yaml_the_advice_works():
    block = {"class_path": MAKE_LAYER, "init_args": {"kind": "conv"}}
    with pytest.raises(UserError, match=r"has no 'kernel_size'; put .* in dict_kwargs"):
        parse(json.dumps({**block, "init_args": {"kind": "conv", "kernel_size": 3}}))
    parser, config = parse(json.dumps({**block, "dict_kwargs": {"kernel_size": 3}}))
    assert parser.instantiate(config).model.network.kernel_size == (3, 3)
