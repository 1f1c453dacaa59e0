"""What ``predict`` reads and writes, checked before anything is built."""

from pathlib import Path

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter

from litlab.errors import UserError


def check_prediction(config: Namespace) -> Path:
    """Return the file for the predictions.

    Args:
        config: The settings of ``predict``.

    Raises:
        UserError: If there is no input, not all of it would be predicted, or the file would replace something else, or
            is of a kind that can't be written.
    """
    from litlab.data.predictions import check_output, is_predictions

    if not config.input:
        raise UserError("--input: it is not set; give a file or a folder")
    if config.trainer.fast_dev_run or config.trainer.limit_predict_batches is not None:
        raise UserError("trainer.limit_predict_batches: it would leave some of the input out; unset it")
    path = Path(config.output or Path(config.run or "", "predictions.csv")).expanduser()
    check_output(path)
    if path.is_symlink() or (path.exists() and not (path.is_file() and is_predictions(path))):
        raise UserError(f"--output: {path} exists and does not hold predictions; choose another file")
    return path


def check_writer(trainer: Trainer, data: LightningDataModule) -> None:
    """Refuse a prediction that nobody would keep.

    Raises:
        UserError: If neither the data nor a callback writes it.
    """
    callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    if not any(isinstance(callback, BasePredictionWriter) for callback in callbacks):
        raise UserError(
            f"predict: {type(data).__name__} has no write_predictions, and trainer.callbacks no BasePredictionWriter; "
            "add one of them to keep what is predicted"
        )
