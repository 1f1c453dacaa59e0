"""Sample texts of a test, with their predictions."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.evaluation import class_names, data_with, from_test_step
from litlab.callbacks.reporting import publish_table, run_folder
from litlab.types import PositiveInt
from litlab.util.ranks import gather_rows


class TextSamples(Callback):
    """Show texts with true class, prediction and probability at the end of each test.

    The most confident mistakes, most confident first, and as many texts that are classified right,
    spread evenly over the test set; of all ranks, and the same ones for any number of ranks. They
    go to the loggers as a table or text (``test/texts``) and to the run folder as ``texts.csv``.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is
    ``(inputs, labels)``, labels (batch,). The data module offers
    ``sample_index("test", batch_idx)``, which returns the numbers of the samples in a batch of this
    rank, int64 (batch,); ``text("test", number)``, the text of a sample; and perhaps
    ``class_names``.

    Args:
        samples: Number of mistakes, and of texts that are classified right.

    Raises:
        UserError: Where the model's ``test_step`` returns no ``logits``, or where the data module
            has no ``text`` or ``sample_index``.
    """

    files = ("texts.csv",)

    def __init__(self, samples: PositiveInt = 10) -> None:
        self.samples = samples

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._numbers: list[Tensor] = []  # (batch,) of each batch
        # (batch, 3) of each: true class, prediction, probability; on the device
        self._rows: list[Tensor] = []
        self._classes = 0

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        logits = from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
        self._numbers.append(
            data_with(self, trainer, "text", "sample_index").sample_index("test", batch_idx)
        )
        probability, predicted = logits.float().softmax(dim=1).max(dim=1)
        self._rows.append(
            torch.stack([part.float() for part in (batch[1], predicted, probability)], dim=1)
        )
        self._classes = logits.shape[1]

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank, like gathering
        rows = torch.empty(0, 4, dtype=torch.float64)  # number, true class, prediction, probability
        if self._rows:
            rows = torch.cat(
                [torch.cat(self._numbers).cpu()[:, None], torch.cat(self._rows).cpu().double()],
                dim=1,
            )
        rows = gather_rows(trainer, rows)
        if not trainer.is_global_zero or not len(rows):
            return

        from pandas import DataFrame

        # Sorted by number first, so that the choice is the same for any batches and ranks.
        rows = rows[rows[:, 0].argsort()]
        correct = rows[:, 1] == rows[:, 2]
        mistakes, right = rows[~correct], rows[correct]
        mistakes = mistakes[mistakes[:, 3].argsort(descending=True, stable=True)[: self.samples]]
        right = right[
            torch.linspace(0, len(right) - 1, min(self.samples, len(right))).round().long()
        ]

        names, text = class_names(trainer, self._classes), data_with(self, trainer, "text").text
        table = []
        for number, label, predicted, probability in torch.cat([mistakes, right]).tolist():
            table.append(
                [
                    int(number),
                    text("test", int(number)),
                    names[int(label)],
                    names[int(predicted)],
                    probability,
                ]
            )
        columns = ["number", "text", "true", "prediction", "probability"]
        publish_table(trainer, folder, "texts", DataFrame(table, columns=columns))
