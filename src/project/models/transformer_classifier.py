"""The text experiment's model."""

from typing import Any

import torch
from torch import Tensor, nn

from litlab.data import PADDING, TextData, progress_bar
from litlab.errors import UserError
from litlab.tasks import Classifier
from litlab.types import PositiveInt
from project.networks.ngrams import NGramLogOdds


class TransformerClassifier(Classifier):
    """A `Classifier` of texts that reads both ends of the long ones.

    Inputs are {"ids": token ids of shape (batch, time), with padding, 0, after the text}. Training
    takes at most max_tokens tokens. Evaluation and prediction read both ends of a longer text, its
    first and its last max_tokens tokens, and average their logits.

    Args:
        network: Returns logits, (batch, classes), from ids, such as
            project.networks.text_transformer.TextTransformer.
        max_tokens: Tokens that the network reads at once. Taken from the data when left out.
        **settings: num_classes, members, label_smoothing, metrics, optimizer, schedule and
            param_groups, as of `Classifier`.

    Raises:
        UserError: If max_tokens is neither set nor provided by the data.
    """

    data_facts = ("num_classes", "vocab_size", "max_tokens", "padding")
    padding = PADDING  # a pre-trained tokenizer may have another one

    def __init__(
        self, network: nn.Module, *, max_tokens: PositiveInt | None = None, **settings: Any
    ) -> None:
        if max_tokens is None:
            raise UserError(
                "model.max_tokens: the data does not provide it; set it or use TextData"
            )
        super().__init__(network, **settings)
        self.max_tokens = max_tokens
        self.vocab_size = getattr(network, "vocab_size", None)

    def on_fit_start(self) -> None:
        """Count the n-grams of the training texts, where the network asks for them."""
        super().on_fit_start()
        parts = [part for part in self.modules() if isinstance(part, NGramLogOdds)]
        if not parts:
            return
        data: Any = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, TextData) or data.hparams["long_texts"] == "crop":
            raise UserError(
                "model.network.ngrams: it needs TextData with the same tokens of a text in every "
                "epoch; set data.long_texts to truncate, or model.network.ngrams to 0"
            )
        texts: Any = data.train_dataloader().dataset
        numbers = torch.arange(len(texts)).split(256)
        counted, *members = parts
        counted.count(texts[some] for some in progress_bar(numbers, desc="Counting n-grams"))
        for part in members:
            part.log_odds.copy_(counted.log_odds)
            part.fold_log_odds = counted.fold_log_odds

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return logits of shape (batch, classes)."""
        ids = inputs["ids"]
        if self.training or ids.shape[1] <= self.max_tokens:
            return self.network(ids)
        # Where each text's last window begins, and from there the row of each of its tokens; the
        # first window again where the text is no longer than that.
        start = ((ids != PADDING).sum(dim=1, keepdim=True) - self.max_tokens).clamp(min=0)
        rows = start + torch.arange(self.max_tokens, device=ids.device)
        texts = torch.arange(ids.shape[0], device=ids.device)[:, None]
        return (self.network(ids[:, : self.max_tokens]) + self.network(ids[texts, rows])) / 2
