"""What the operators of `project.ops` gain over the compositions that they replace.

python benchmarks/operators.py
python benchmarks/operators.py --repeats 5   shorter

On one thread; times are those of the processor, so that other work on the machine counts less. What
is compared is measured in turns. A ratio is that of the two times of one turn: above 1 the operator
is faster.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import save, summarise
from torch import Tensor, nn
from torch.nn import functional as F

from project.networks.attention import math_attention
from project.ops.masked_softmax import is_built, masked_softmax, plain_masked_softmax
from project.ops.squared_relu import SquaredReLU

BATCH, HEADS, HEAD_DIM = 32, 4, 24  # of text.yaml
TOKENS = (96, 200, 400)


def in_turns(variants: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Milliseconds of each variant; how many times as long as the last one the others take."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(repeats + 2):
        for name, call in variants.items():
            start = time.process_time()
            call()
            if turn > 1:  # the first ones allocate
                times[name].append(1000 * (time.process_time() - start))
    *others, own = times
    ratios = {
        name: [a / b for a, b in zip(times[name], times[own], strict=True)] for name in others
    }
    return {
        "milliseconds": {name: rounded(values) for name, values in times.items()},
        f"times as long as {own}": {name: rounded(values) for name, values in ratios.items()},
    }


def rounded(values: list[float]) -> dict[str, float]:
    return {name: float(f"{value:.3g}") for name, value in summarise(values).items()}


def kept(call: Callable[[], Tensor]) -> float:
    """MiB that are kept for the backward pass."""
    storages: dict[int, tuple[Tensor, int]] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = (tensor, tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return round(sum(size for _, size in storages.values()) / 2**20, 2)


def both_passes(
    call: Callable[[], Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(call(), inputs, grad)


def padding(tokens: int) -> Tensor:
    """Texts of at least half of the tokens; shape (batch, 1, 1, key)."""
    return (torch.arange(tokens) < torch.randint(tokens // 2, tokens + 1, (BATCH, 1)))[
        :, None, None, :
    ]


def softmaxes(tokens: int, repeats: int) -> dict[str, Any]:
    scores, mask = torch.randn(BATCH, HEADS, tokens, tokens, requires_grad=True), padding(tokens)
    grad = torch.randn_like(scores)
    calls = {
        "composition": partial(plain_masked_softmax, scores, mask, 0.2),
        "operator": partial(masked_softmax, scores, mask, 0.2),
    }
    passes = {name: both_passes(call, (scores,), grad) for name, call in calls.items()}
    with torch.no_grad():
        forward = in_turns(calls, repeats)
    values = torch.randn(BATCH, HEADS, tokens, HEAD_DIM, requires_grad=True)
    kept_mib = {name: kept(lambda call=call: call() @ values) for name, call in calls.items()}
    return {
        "forward": forward,
        "forward and backward": in_turns(passes, repeats),
        "MiB kept for backward, with the product by values": kept_mib,
    }


def attentions(tokens: int, dropout: float, repeats: int) -> dict[str, Any]:
    inputs = tuple(
        torch.randn(BATCH, HEADS, tokens, HEAD_DIM, requires_grad=True) for _ in range(3)
    )
    mask, grad = padding(tokens), torch.randn(BATCH, HEADS, tokens, HEAD_DIM)
    calls = {
        "scaled_dot_product_attention": partial(
            F.scaled_dot_product_attention, *inputs, attn_mask=mask, dropout_p=dropout
        ),
        "math": lambda: math_attention(*inputs, mask, dropout)[0],
        "fused_softmax": lambda: math_attention(*inputs, mask, dropout, softmax=masked_softmax)[0],
    }
    return in_turns(
        {name: both_passes(call, inputs, grad) for name, call in calls.items()}, repeats
    )


def activations(rows: int, repeats: int) -> dict[str, Any]:
    """Return the time of a hidden layer's activation, and what it and the linear layers around it
    keep.
    """
    x = torch.randn(rows, 192, requires_grad=True)
    grad = torch.randn_like(x)
    functions = {"relu(x) ** 2": lambda x: x.relu() ** 2, "SquaredReLU": SquaredReLU()}
    layers = nn.Linear(96, 192), nn.Linear(192, 96)
    tokens = torch.randn(rows, 96)
    times = in_turns(
        {n: both_passes(partial(f, x), (x,), grad) for n, f in functions.items()}, repeats
    )
    kept_mib = {n: kept(lambda f=f: layers[1](f(layers[0](tokens)))) for n, f in functions.items()}
    return {"forward and backward": times, "MiB kept for backward, with linear layers": kept_mib}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if not is_built("cpu"):
        raise SystemExit(1)
    lengths = {f"{tokens} tokens": tokens for tokens in TOKENS}
    results = {
        "softmax": {name: softmaxes(tokens, repeats) for name, tokens in lengths.items()},
        "attention, forward and backward": {
            n: attentions(tokens, 0.0, repeats) for n, tokens in lengths.items()
        },
        "attention with dropout": {
            n: attentions(tokens, 0.1, repeats) for n, tokens in lengths.items()
        },
        "activation": {
            f"{BATCH} x {tokens} x 192": activations(BATCH * tokens, repeats)
            for tokens in TOKENS[::2]
        },
    }
    save("operators", results)
