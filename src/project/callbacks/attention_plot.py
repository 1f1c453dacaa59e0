"""Which tokens of a text a Transformer attends to."""

import sys
from contextlib import ExitStack
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.callbacks.evaluation import class_names, data_with, from_test_step, pick_evenly
from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.data import PADDING
from litlab.types import PositiveInt
from project.callbacks._figures import make_axes, title_prediction
from project.networks.attention import MultiHeadAttention, math_attention
from project.networks.text_layers import Patches, Pooling

MOST_TOKENS = 50  # of a text, drawn side by side


class AttentionPlot(Callback):
    """Draw how much each token of some test texts is attended to, at the end of each test.

    ``attention.png`` in the run folder and the loggers has a strip for each head of the last block,
    the mean of what all tokens of the text give to a token, and one for attention pooling, where
    the network has it. The texts are spread evenly over the first rank's share of the test; long
    ones are shown up to token `MOST_TOKENS`. With tensor parallelism these are the heads of the
    first rank.

    The network is made of `MultiHeadAttention`, `Pooling` or both. The model's ``test_step``
    returns ``logits``; a batch is ``({"ids": (batch, time)}, labels)``; the data module has a
    ``metadata.tokenizer``, as `TextData` has.

    Args:
        texts: Number of texts.
    """

    files = ("attention.png",)

    def __init__(self, texts: PositiveInt = 6) -> None:
        self.texts = texts

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.strips: list[Tensor] = []  # of each text that was drawn, (strip, token)
        # Of each text: ids, label, probabilities, weights (strip, query, key); on the device, for
        # which nothing waits.
        self._texts: list[tuple[Tensor, ...]] = []
        self._weights: dict[nn.Module, Tensor] = {}  # of those chosen in a batch
        self._watching = ExitStack()
        parts = list(pl_module.modules())
        heads = [part for part in parts if isinstance(part, MultiHeadAttention)][-1:]
        poolings = [
            part for part in parts if isinstance(part, Pooling) and "attention" in part.kinds
        ][-1:]
        self._parts: list[nn.Module] = [*heads, *poolings]
        self._patch = next((part.size for part in parts if isinstance(part, Patches)), 1)
        if not self._parts:
            rank_zero_info(
                "AttentionPlot: the network has no MultiHeadAttention, so there is no "
                "picture of it."
            )

    def on_test_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._weights.clear()
        if not self._parts:
            return
        batches = sum(trainer.num_test_batches)
        chosen = pick_evenly(self.texts, len(self._texts), batch_idx, batches, len(batch[1]))
        if not len(chosen):
            return
        self._chosen = chosen.to(batch[1].device, non_blocking=True)
        if "torch._dynamo" in sys.modules:  # it would be compiled again, with the hooks
            self._watching.enter_context(torch.compiler.set_stance("force_eager"))
        for part in self._parts:
            self._watching.enter_context(
                part.register_forward_pre_hook(self._keep, with_kwargs=True)
            )

    def _keep(self, part: Any, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        """Keep the weights of the chosen texts, (text, strip, query, key).

        Of texts that are longer than the network takes they are those of the first window.
        """
        if part in self._weights:
            return
        x, *others = (arg[self._chosen] for arg in args)
        if isinstance(part, Pooling):
            weights = part.weigh(x, *others).mT[:, None]
        else:
            mask = kwargs.get("mask")
            if mask is not None and mask.ndim == 4 and len(mask) > 1:
                mask = mask[self._chosen]
            _, weights = math_attention(*part.project(x, *others), mask=mask)
        self._weights[part] = weights.float()

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._watching.close()
        if not self._weights:
            return
        chances = (
            from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
            .float()
            .softmax(dim=1)
        )
        texts = (part[self._chosen] for part in (batch[0]["ids"], batch[1], chances))
        self._texts += zip(*texts, *self._weights.values(), strict=True)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank
        if not self._texts or not trainer.is_global_zero:
            return
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(data_with(self, trainer, "metadata").metadata.tokenizer)
        figure, grid = make_axes(len(self._texts), 1, 12, 1.8 * len(self._texts))
        for axes, text in zip(grid.flat, self._texts, strict=True):
            ids, label, chances, *weights = (part.cpu() for part in text)
            length = max(1, int((ids != PADDING).sum()))
            real = -(-length // self._patch)
            strips = torch.cat([part[:, :real, :real].mean(dim=1) for part in weights])
            self.strips.append(strips)

            read = ids[: min(length, strips.shape[1] * self._patch)]
            words = [tokenizer.decode([token]) for token in read.tolist()]
            starts = range(0, len(words), self._patch)
            labels = [" ".join(words[start : start + self._patch]) for start in starts][
                :MOST_TOKENS
            ]
            heads = len(strips) - sum(isinstance(part, Pooling) for part in self._parts)
            rows = [*(f"head {number + 1}" for number in range(heads)), "pooling"]
            axes.imshow(strips[:, : len(labels)], cmap="Blues", vmin=0, aspect="auto")
            axes.set_xticks(range(len(labels)), labels, rotation=90)
            axes.set_yticks(range(len(strips)), rows[: len(strips)])
            axes.set_xlim(-0.5, MOST_TOKENS - 0.5)
            axes.grid(False)
            title_prediction(axes, class_names(trainer, len(chances)), int(label), chances)
        publish_figure(trainer, folder, "attention", figure)
