"""8-bit models, by torchao."""

from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from litlab.callbacks.qat import LINEAR, LINEAR_AND_CONVOLUTIONS, share_of
from litlab.commands.export.graph import trace
from litlab.data.serving import Serving
from litlab.errors import UserError

CALIBRATION = 32  # batches
LEAST = 0.5  # share of the weights below which quantizing is not worth it


def quantize(
    module: nn.Module, serving: Serving, kind: str, batches: Iterable[tuple[Tensor, ...]]
) -> nn.Module:
    """Quantize a `Servable`, which all kinds but int8-static change; its scales are those of
    training batches.
    """
    if kind == "int8-static":
        return _quantize_graph(module, serving, batches)
    torchao: Any = import_module("torchao.quantization")
    if kind == "int8-dynamic":
        torchao.quantize_(module, torchao.Int8DynamicActivationInt8WeightConfig())
    else:
        by_row = torchao.IntxWeightOnlyConfig(
            weight_dtype=torch.int8, granularity=torchao.PerAxis(0)
        )
        torchao.quantize_(
            module, by_row, filter_fn=lambda layer, _: isinstance(layer, nn.Embedding)
        )
        torchao.quantize_(module, torchao.Int8WeightOnlyConfig())
    # As plain tensors: a graph file would hold torchao's classes, which not everybody has who loads
    # it.
    return import_module("torchao.utils").unwrap_tensor_subclass(module)


def check_kind(module: nn.Module, kind: str) -> None:
    """Refuse a kind that would leave most of a model as it is."""
    is_static = kind == "int8-static"
    share = share_of(module, LINEAR_AND_CONVOLUTIONS if is_static else LINEAR)
    if share < LEAST:
        layers = "linear layers and convolutions" if is_static else "linear layers"
        advice = (
            "take int8-static, or " if share_of(module, LINEAR_AND_CONVOLUTIONS) >= LEAST else ""
        )
        raise UserError(
            f"--quantize {kind}: {layers} hold {share:.0%} of the weights; "
            f"{advice}leave --quantize out"
        )


def _quantize_graph(
    module: nn.Module, serving: Serving, batches: Iterable[tuple[Tensor, ...]]
) -> nn.Module:
    """Quantize the graph of a model: PT2E with the quantizer of torch's compiler for x86."""
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
            f"--quantize int8-static: torchao quantizes nothing with torch {torch.__version__}; "
            "install a newer torch, or use int8-dynamic"
        )
    return converted
