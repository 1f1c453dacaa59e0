"""Sample texts of a test, with their predictions."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import (
    TextFacts,
    class_names,
    facts,
    from_test_step,
    gather_rows,
    markdown_table,
    publish_table,
    run_folder,
)
from litlab.types import PositiveInt


class TextSamples(Callback):
    """Show texts with true class, prediction and probability at the end of each test.

    The most confident mistakes, most confident first, and as many texts that are classified right, spread evenly over
    the test set; of all ranks, and the same ones for any number of ranks. They go to the loggers as a table or
    text (``test/texts``) and to the run folder as ``test_texts.csv``.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is ``(inputs, labels)``, labels
    (batch,). The data module offers ``sample_index("test", batch_idx)``, which returns the numbers of the samples in a
    batch of this rank, int64 (batch,); ``text("test", number)``, the text of a sample; and perhaps ``class_names``.

    Args:
        samples: Number of mistakes, and of texts that are classified right.

    Raises:
        UserError: Where the model's ``test_step`` returns no ``logits``, or where the data module has no ``text`` or
            ``sample_index``.
    """

    def __init__(self, samples: PositiveInt = 10) -> None:
        self.samples = samples
        self._numbers: list[Tensor] = []  # (batch,) of each batch
        self._rows: list[Tensor] = []  # (batch, 3) of each: true class, prediction, probability; on the device
        self._classes = 0

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the previous test."""
        self._numbers, self._rows = [], []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Note what was predicted, without waiting for the device."""
        logits = from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
        self._numbers.append(facts(self, trainer, TextFacts).sample_index("test", batch_idx))
        self._classes = logits.shape[1]
        probability, predicted = logits.float().softmax(dim=1).max(dim=1)
        self._rows.append(torch.stack([part.float() for part in (batch[1], predicted, probability)], dim=1))

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gather from all ranks, log and save."""
        folder = run_folder(trainer)  # on every rank, like gathering
        rows = torch.empty(0, 4, dtype=torch.float64)  # number, true class, prediction, probability
        if self._rows:
            rows = torch.cat([torch.cat(self._numbers).cpu()[:, None], torch.cat(self._rows).cpu().double()], dim=1)
        wrong = rows[:, 1] != rows[:, 2]
        mistakes = self._most_confident(gather_rows(trainer, self._most_confident(rows[wrong])))
        right = self._evenly_spread(gather_rows(trainer, self._evenly_spread(rows[~wrong])))
        if not trainer.is_global_zero or not len(mistakes) + len(right):
            return
        names, text = class_names(trainer, self._classes), facts(self, trainer, TextFacts).text
        header = ["number", "text", "true", "prediction", "probability"]
        tables = [
            [
                (int(number), text("test", int(number)), names[int(label)], names[int(predicted)], probability)
                for number, label, predicted, probability in rows.tolist()
            ]
            for rows in (mistakes, right[right[:, 0].argsort()])
        ]
        titles = ("### The most confident mistakes", "### Classified right")
        shown = "\n\n".join(
            f"{title}\n\n{markdown_table(header, [(*row, f'{p:.1%}') for *row, p in table]) if table else 'None.'}"
            for title, table in zip(titles, tables, strict=True)
        )
        rows = [row for table in tables for row in table]
        publish_table(trainer, folder, "texts", header, rows, file="test_texts.csv", text=shown)

    def _most_confident(self, rows: Tensor) -> Tensor:
        # Sorted by number first, so that equal probabilities come in the same order for any batches and ranks.
        rows = rows[rows[:, 0].argsort()]
        return rows[rows[:, 3].argsort(descending=True, stable=True)[: self.samples]]

    def _evenly_spread(self, rows: Tensor) -> Tensor:
        """Choose by the number of a sample alone, whatever else is there: so ranks and batches don't matter.

        Multiples of the golden ratio, modulo 1, are spread evenly; and so are the numbers whose multiples are smallest
        (Knuth, The Art of Computer Programming 3, section 6.4).
        """
        return rows[(rows[:, 0].long() * 2_654_435_769 % 2**32).argsort()[: self.samples]]
