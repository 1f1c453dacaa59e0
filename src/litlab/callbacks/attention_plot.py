"""Which tokens of a text a network attends to."""

import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.callbacks.reporting import make_axes, publish_figure, run_folder
from litlab.callbacks.samples import EvenPick, data_with, read_predictions, refuse
from litlab.types import PositiveInt

MOST_TOKENS = 50  # of a text, drawn side by side


class AttentionPlot(Callback):
    """Draw how much attention each token of some test texts gets, at the end of each test.

    ``attention.png`` in the run folder and the loggers has a strip for each head: the mean of the
    attention that all tokens of the text give to a token. If several modules have the same class,
    it shows the last one, such as that of the last block. The texts are spread evenly over the
    first rank's share of the test; long ones are shown up to token `MOST_TOKENS`. With tensor
    parallelism, it shows the heads of the first rank.

    It shows ``torch.nn.MultiheadAttention``, and each module that has ``attention_weights(rows,
    *args, **kwargs)``: called with the rows of a batch that are drawn, int64 (row,), and with the
    arguments of the module's ``forward``, it returns their weights (row, head, query, key), or None
    if the module has none. A single query stands for all tokens, as in pooling. If a module joins
    neighbouring tokens into one key, its ``tokens_per_key`` says how many.

    The model's ``test_step`` and the batches are as `litlab.callbacks.samples.read_predictions`
    takes them; inputs are a dict with ``ids`` (batch, time). The data module has
    ``metadata.tokenizer`` and ``metadata.padding``, the id behind the end of a text, as `TextData`.

    Args:
        texts: Number of texts.

    Raises:
        UserError: In a test, where model or data lack what is needed.
    """

    files = ("attention.png",)

    def __init__(self, texts: PositiveInt = 6) -> None:
        self.texts = texts
        self._watching = ExitStack()  # while a batch is tested

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.strips: list[Tensor] = []  # of each text that was drawn, (strip, token)
        # Of each text: ids, what is predicted, weights (head, query, key) of each module; on the
        # device, for which nothing waits.
        self._texts: list[tuple[Tensor, ...]] = []
        self._weights: dict[str, Tensor] = {}  # of those chosen in a batch
        self._pick = EvenPick(self.texts, trainer)
        self._parts = {
            type(part): (name.rpartition(".")[2], part)
            for name, part in pl_module.named_modules()
            if hasattr(part, "attention_weights") or isinstance(part, nn.MultiheadAttention)
        }

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any, **__: Any
    ) -> None:
        self._weights.clear()
        if not self._parts:
            return
        inputs = batch[0] if isinstance(batch, list | tuple) else None
        if not isinstance(inputs, dict) or "ids" not in inputs:
            raise refuse(
                self, "a test batch must be ({'ids': (batch, time)}, target); return such batches"
            )
        self._rows = self._pick(inputs["ids"])
        if not len(self._rows):
            return
        if "torch._dynamo" in sys.modules:  # it would be compiled again, with the hooks
            self._watching.enter_context(torch.compiler.set_stance("force_eager"))
        for name, part in self._parts.values():
            hook = partial(self._keep, name)
            self._watching.enter_context(part.register_forward_pre_hook(hook, with_kwargs=True))

    def _keep(self, name: str, part: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep the weights of the chosen texts, (text, head, query, key).

        Of texts that are longer than the network takes they are those of the first window.
        """
        if name in self._weights:
            return
        if isinstance(part, nn.MultiheadAttention):
            options = {**kwargs, "need_weights": True, "average_attn_weights": False}
            outputs: Any = part.forward(*args, **options)
            weights = outputs[1][self._rows]
        else:
            weights = part.attention_weights(self._rows, *args, **kwargs)
        if weights is not None:
            self._weights[name] = weights.float()

    def on_exception(self, *_: Any, **__: Any) -> None:
        """Take back the hooks, and what the compiler was told."""
        self._watching.close()

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        self._watching.close()
        if self._weights:
            self._outputs, rows = read_predictions(self, trainer, pl_module, outputs, batch)
            texts = (part[self._rows] for part in (batch[0]["ids"], rows))
            self._texts += zip(*texts, *self._weights.values(), strict=True)
            self._names = list(self._weights)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank
        if not self._texts:
            rank_zero_info(
                "AttentionPlot: no module of the network has attention_weights, or none of the "
                "texts came to it; there is no picture"
            )
        if not self._texts or not trainer.is_global_zero:
            return
        from tokenizers import Tokenizer

        metadata = data_with(self, trainer, "metadata").metadata
        tokenizer = Tokenizer.from_str(metadata.tokenizer)
        size = max(getattr(part, "tokens_per_key", 1) for part in pl_module.modules())
        figure, grid = make_axes(len(self._texts), 1, 12, 1.8 * len(self._texts))
        for axes, (ids, row, *weights) in zip(grid.flat, self._texts, strict=True):
            # The mean over the tokens of the text
            length = max(1, int((ids != metadata.padding).sum()))
            keys = -(-length // size)
            strips = torch.cat([part[:, :keys, :keys].mean(dim=1) for part in weights]).cpu()
            self.strips.append(strips)

            shown = strips[:, :MOST_TOKENS]
            count = shown.shape[1]
            words = [tokenizer.decode(tokens.tolist()) for tokens in ids[:length].split(size)]
            heads = [
                f"{name} {head}"
                for name, part in zip(self._names, weights, strict=True)
                for head in range(1, len(part) + 1)
            ]
            axes.imshow(shown, cmap="Blues", vmin=0, aspect="auto")
            axes.set_xticks(range(count), words[:count], rotation=90)
            axes.set_yticks(range(len(heads)), heads)
            axes.set_xlim(-0.5, MOST_TOKENS - 0.5)
            axes.grid(False)
            self._outputs.set_title(axes, row)
        publish_figure(trainer, folder, "attention", figure)
