"""Sample texts of a test, with their predictions."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import publish_table, run_folder
from litlab.callbacks.samples import data_with, gather_batches, read_predictions, spread_evenly
from litlab.types import PositiveInt


class TextSamples(Callback):
    """Show texts with their targets and predictions at the end of each test.

    It shows the most confident mistakes, the most confident first, and as many correctly classified
    texts, spread evenly over the test set; for numbers, the largest errors, and as many other
    texts. They come from all ranks, and are the same for any number of ranks. They go to the
    loggers as a table or text (``test/texts``) and to the run folder as ``texts.csv``: ``number``
    of the sample, ``text``, ``true``, ``prediction``, and its ``probability``, of several labels
    that of the surest mistake or of the least sure label; of numbers the ``error``, that of the
    worst one in standard deviations of its target.

    The model's ``test_step`` and the batches are as `litlab.callbacks.samples.read_predictions`
    takes them. The data module offers ``sample_index("test", batch_idx)``, which returns the
    numbers of the samples in a batch of this rank, int64 (batch,); ``text("test", number)``, the
    text of a sample; and perhaps ``class_names`` or ``label_names``.

    Args:
        samples: Number of mistakes, and of correctly classified texts.

    Raises:
        UserError: Where the model's ``test_step`` returns no predictions, or where the data module
            has no ``text`` or ``sample_index``.
    """

    files = ("texts.csv",)

    def __init__(self, samples: PositiveInt = 10) -> None:
        self.samples = samples

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._data = data_with(self, trainer, "text", "sample_index")
        self._numbers: list[Tensor] = []  # (batch,) of each batch
        self._rows: list[Tensor] = []  # of what is predicted; on the device

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._outputs, rows = read_predictions(self, trainer, pl_module, outputs, batch)
        self._numbers.append(self._data.sample_index("test", batch_idx))
        self._rows.append(rows)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank, like gathering
        numbers, rows = (gather_batches(trainer, part) for part in (self._numbers, self._rows))
        if not trainer.is_global_zero or not len(rows):
            return

        from pandas import DataFrame, concat

        # Sorted by number first, so that the choice is the same for any batches and ranks.
        is_wrong, score = rows[:, :2].T
        frame = DataFrame({"number": numbers, "wrong": is_wrong > 0, "score": score})
        frame = frame.sort_values("number")
        worst = frame.query("wrong").nlargest(self.samples, "score")
        is_regression = self._outputs.task == "regression"
        others = frame.drop(worst.index) if is_regression else frame.query("not wrong")
        others = others.iloc[spread_evenly(self.samples, len(others))]
        table = [
            [number, self._data.text("test", number), *self._outputs.describe_row(rows[i]), value]
            for i, number, _, value in concat([worst, others]).itertuples()
        ]
        score_name = "error" if is_regression else "probability"
        columns = ["number", "text", "true", "prediction", score_name]
        publish_table(trainer, folder, "texts", DataFrame(table, columns=columns))
