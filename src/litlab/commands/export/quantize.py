"""8-bit models, by torchao."""

from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from litlab.commands.export.graph import trace
from litlab.data.serving import Serving
from litlab.errors import UserError
from litlab.nn.fake_quantize import LEAST, LINEAR, LINEAR_AND_CONVOLUTIONS, share_of

CALIBRATION = 32  # batches


def quantize(module: nn.Module, serving: Serving, kind: str, batches: Iterable[tuple[Tensor, ...]]) -> nn.Module:
    """Quantize a model.

    Args:
        module: A `Servable`; the kinds but int8-static change it.
        serving: Its inputs.
        kind: One of `litlab.commands.export.export.KINDS`.
        batches: Raw inputs of training batches, to measure the scales of int8-static.

    Returns:
        The quantized model, which takes the same inputs.

    Raises:
        UserError: torchao can't quantize with this version of torch.
    """
    if kind == "int8-static":
        return _quantize_graph(module, serving, batches)
    torchao: Any = import_module("torchao.quantization")
    if kind == "int8-dynamic":
        torchao.quantize_(module, torchao.Int8DynamicActivationInt8WeightConfig())
    else:
        by_row = torchao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=torchao.PerAxis(0))
        torchao.quantize_(module, by_row, filter_fn=lambda layer, _: isinstance(layer, nn.Embedding))
        torchao.quantize_(module, torchao.Int8WeightOnlyConfig())
    # As plain tensors: a graph file would hold torchao's classes, which not everybody has who loads it.
    return import_module("torchao.utils").unwrap_tensor_subclass(module)


def check_kind(module: nn.Module, kind: str) -> None:
    """Refuse a kind that would leave most of a model as it is.

    Raises:
        UserError: What holds most of the weights is of another kind of layer.
    """
    is_static = kind == "int8-static"
    share, other = share_of(module, LINEAR_AND_CONVOLUTIONS if is_static else LINEAR)
    if share < LEAST:
        layers = "linear layers and convolutions" if is_static else "linear layers"
        advice = "use int8-static" if other == "Conv2d" else "leave --quantize out"
        raise UserError(
            f"--quantize {kind}: it is for {layers}, which hold {share:.0%} of the weights; those of {other} would "
            f"stay as they are; {advice}"
        )


def _quantize_graph(module: nn.Module, serving: Serving, batches: Iterable[tuple[Tensor, ...]]) -> nn.Module:
    """Quantize the graph of a model: PT2E with the quantizer of torch's compiler for x86.

    Raises:
        UserError: If the quantizer of this version does not know the layers of a graph of this torch.
    """
    steps: Any = import_module("torchao.quantization.pt2e.quantize_pt2e")
    x86: Any = import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = steps.prepare_pt2e(trace(module, serving).module(), quantizer)
    with torch.no_grad():
        for raw in islice(batches, CALIBRATION):
            prepared(*raw)
    converted = steps.convert_pt2e(prepared)
    if not any("quantize" in str(node.target) for node in converted.graph.nodes):
        raise UserError(
            f"--quantize int8-static: torchao quantizes nothing with torch {torch.__version__}; install a newer torch, "
            "or use int8-dynamic"
        )
    return converted
