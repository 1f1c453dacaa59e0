"""What a test with a callback sends to loggers of several kinds; not a test itself."""

from pathlib import Path

import numpy as np
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.litlab.callbacks.tiny import make_trainer
from tests.recorder import Recorder, RunRecorder


def check_loggers(folder: Path, callback: Callback, model, data, pictures=(), tables=()) -> None:
    """Check that each logger gets the pictures and tables of a test that it takes."""
    recorder, run = Recorder(), RunRecorder()
    loggers = [TensorBoardLogger(folder, name="", version=""), CSVLogger(folder / "csv"), recorder, run]
    make_trainer(folder, logger=loggers, callbacks=[callback]).test(model, data, verbose=False)
    events = EventAccumulator(str(folder))
    events.Reload()
    tags, client = events.Tags(), run.client
    pictures, tables = {f"test/{name}" for name in pictures}, {f"test/{name}" for name in tables}
    assert recorder.pictures.keys() == client.pictures.keys() == set(tags["images"]) == pictures
    for name, pixels in recorder.pictures.items():
        assert np.array_equal(pixels, np.asarray(Image.open(folder / f"{name.removeprefix('test/')}.png")))
        assert np.array_equal(pixels, client.pictures[name])
    assert recorder.tables.keys() == client.texts.keys() == tables
    assert {tag.removesuffix("/text_summary") for tag in tags["tensors"]} == tables
    for name, (columns, rows) in recorder.tables.items():
        assert {len(row) for row in rows} == {len(columns)}
        shown = client.texts[name].replace("\\", "")  # of Markdown
        assert all(column in shown for column in columns)
