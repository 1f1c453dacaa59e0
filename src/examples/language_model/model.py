"""A language model with any causal network."""

import math
from typing import Any

import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from examples.language_model.data import NO_TARGET
from litlab.metrics import StageMetrics, Sums
from litlab.tasks import ExperimentModule
from litlab.types import PositiveFloat, PositiveInt


class BitsPerCharacter(Sums):
    """Bits that a character takes on average, from losses in nats of tokens."""

    higher_is_better = False

    def __init__(self, characters_per_token: float) -> None:
        super().__init__(2)
        self.unit = math.log(2) * characters_per_token

    def update(self, losses: Tensor, target: Tensor) -> None:
        """Add losses and targets, both (batch, time)."""
        super().update(losses, target != NO_TARGET)

    def compute(self) -> Tensor:
        losses, tokens = self.sums
        return losses / tokens / self.unit


class LanguageModel(ExperimentModule):
    """Learn the next token at each token of a window, (ids, next ids), each int64 (batch, time).

    Logged: ``loss``, in nats of a token, and ``bits_per_character``; and to TensorBoard, after each
    validation, a text that the model writes.

    Args:
        network: Returns logits, (batch, time, vocabulary), for ids, such as
            examples.language_model.network.CausalTransformer.
        length: Tokens that a prompt is continued by.
        temperature: What logits are divided by when a text is written; near 0: always the most
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
        self.set_metrics({"bits_per_character": BitsPerCharacter(characters_per_token or 1.0)})

    def training_outputs(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        losses, target = self.evaluation_outputs(batch)
        return losses.mean(), losses, target

    def evaluation_outputs(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of each token, 0 where none is scored, and the next ids."""
        ids, target = batch
        losses = F.cross_entropy(self(ids).mT, target, ignore_index=NO_TARGET, reduction="none")
        return losses, target

    def evaluate(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        loss = outputs.sum() / (target != NO_TARGET).sum()
        metrics.add(loss, outputs, target)
        return {"loss": loss}

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Continue prompts, int64 (time,) each; return the new tokens, (batch, length)."""
        return torch.stack([self.write(prompt) for prompt in batch])

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
