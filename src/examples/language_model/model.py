"""A language model with any causal network."""

import math
from typing import Any

import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from examples.language_model.data import NO_TARGET
from litlab.metrics import Sums
from litlab.tasks import ExperimentModule
from litlab.types import PositiveFloat, PositiveInt


class MeanOfTokens(Sums):
    """Mean of a number over the tokens that count."""

    higher_is_better = False

    def compute(self) -> Tensor:
        return self.sums[0] / self.sums[1]


class LanguageModel(ExperimentModule):
    """Learn the next token at each token of a window, (ids, next ids), each int64 (batch, time).

    Logged: ``loss``, in nats of a token, and ``bits_per_character``; and to TensorBoard, after each
    validation, a text that the model writes.

    Args:
        network: Returns logits, (batch, time, vocabulary), for ids, such as
            examples.language_model.network.CausalTransformer.
        length: Number of tokens that continue a prompt.
        temperature: Divisor of the logits when a text is written; near 0, it is always the most
            probable token.
        context_length: Tokens of a window. Taken from the data when left out.
        characters_per_token: Taken from the data when left out.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        length: PositiveInt = 200,
        temperature: PositiveFloat = 0.8,
        context_length: int | None = None,
        characters_per_token: float | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        self.network = network
        self.length, self.temperature = length, temperature
        self.context_length = context_length or 1
        self.unit = math.log(2) * (characters_per_token or 1.0)
        self.set_metrics({"bits_per_character": MeanOfTokens(2)})

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of a token, shape (), of logits, (batch, time, vocabulary)."""
        return F.cross_entropy(outputs.mT, target, ignore_index=NO_TARGET)

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bits that each token takes, and 1 for those that count."""
        losses = F.cross_entropy(outputs.mT, target, ignore_index=NO_TARGET, reduction="none")
        return losses / self.unit, target != NO_TARGET

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Continue prompts, ``ids`` (batch, time) of a ``length`` each; return the new tokens,
        (batch, length).
        """
        prompts = zip(batch["ids"], batch["length"], strict=True)
        return torch.stack([self.write(ids[:length]) for ids, length in prompts])

    @torch.no_grad()
    def write(self, prompt: Tensor) -> Tensor:
        """Return the tokens that follow a prompt, int64 (length,); the same each time."""
        generator = torch.Generator().manual_seed(0)
        ids = prompt
        for _ in range(self.length):
            logits = self(ids[None, -self.context_length :])[0, -1] / self.temperature
            # The largest with Gumbel noise is a draw by the softmax, on any device
            noise = -torch.rand(len(logits), generator=generator).log().neg().log()
            ids = torch.cat([ids, (logits + noise.to(logits)).argmax()[None]])
        return ids[len(prompt) :]

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        boards = [logger for logger in self.loggers if isinstance(logger, TensorBoardLogger)]
        if boards and not self.trainer.sanity_checking:
            data: Any = self.trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
            ids = self.write(data.ids["val"][: self.context_length // 2].to(self.device))
            text = Tokenizer.from_str(data.metadata.tokenizer).decode(ids.tolist())
            for board in boards:
                board.experiment.add_text("val/sample", text, self.global_step)
