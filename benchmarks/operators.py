"""What a masked softmax of one's own gains over plain PyTorch, alone and within attention.

    python benchmarks/operators.py mine.masked_softmax
    python benchmarks/operators.py mine.masked_softmax --repeats 5   shorter

On one thread; times are those of the processor, so that other work on the machine counts less. What
is compared is measured in turns. A ratio is that of the two times of one turn: above 1 the operator
is faster.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pydoc import locate
from typing import Any

import torch
from common import save, summarise
from torch import Tensor
from torch.nn import functional as F

from project.networks.attention import math_attention, plain_masked_softmax

BATCH, HEADS, HEAD_DIM = 32, 4, 24  # of text.yaml
TOKENS = (96, 200, 400)
Softmax = Callable[[Tensor, Tensor | None, float], Tensor]


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


def both_passes(
    call: Callable[[], Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(call(), inputs, grad)


def padding(tokens: int) -> Tensor:
    """Texts of at least half of the tokens; shape (batch, 1, 1, key)."""
    return (torch.arange(tokens) < torch.randint(tokens // 2, tokens + 1, (BATCH, 1)))[
        :, None, None, :
    ]


def softmaxes(softmax: Softmax, tokens: int, repeats: int) -> dict[str, Any]:
    scores, mask = torch.randn(BATCH, HEADS, tokens, tokens, requires_grad=True), padding(tokens)
    grad = torch.randn_like(scores)
    calls = {
        "composition": partial(plain_masked_softmax, scores, mask, 0.2),
        "operator": partial(softmax, scores, mask, 0.2),
    }
    passes = {name: both_passes(call, (scores,), grad) for name, call in calls.items()}
    with torch.no_grad():
        forward = in_turns(calls, repeats)
    return {"forward": forward, "forward and backward": in_turns(passes, repeats)}


def attentions(softmax: Softmax, tokens: int, dropout: float, repeats: int) -> dict[str, Any]:
    inputs = tuple(
        torch.randn(BATCH, HEADS, tokens, HEAD_DIM, requires_grad=True) for _ in range(3)
    )
    mask, grad = padding(tokens), torch.randn(BATCH, HEADS, tokens, HEAD_DIM)
    calls = {
        "scaled_dot_product_attention": partial(
            F.scaled_dot_product_attention, *inputs, attn_mask=mask, dropout_p=dropout
        ),
        "math": lambda: math_attention(*inputs, mask, dropout)[0],
        "math, with the operator": lambda: math_attention(*inputs, mask, dropout, softmax=softmax)[
            0
        ],
    }
    return in_turns(
        {name: both_passes(call, inputs, grad) for name, call in calls.items()}, repeats
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("softmax", type=locate, help="dotted path of the function")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    softmax, repeats = arguments.softmax, arguments.repeats
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths = {f"{tokens} tokens": tokens for tokens in TOKENS}
    results = {
        "softmax": {name: softmaxes(softmax, tokens, repeats) for name, tokens in lengths.items()},
        "attention, forward and backward": {
            n: attentions(softmax, tokens, 0.0, repeats) for n, tokens in lengths.items()
        },
        "attention with dropout": {
            n: attentions(softmax, tokens, 0.1, repeats) for n, tokens in lengths.items()
        },
    }
    save("operators", results)
