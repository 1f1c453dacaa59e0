import io
import json
import re
import time

import pytest
import rich
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from litlab.callbacks import Baselines, ProgressBar
from litlab.callbacks import baselines as module
from litlab.callbacks.baselines import comparison
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Data(TinyData):
    seconds = 0.0
    calls = 0

    def baselines(self):
        self.calls += 1
        time.sleep(self.seconds)
        return {"majority": {"test/loss": 1e6, "test/acc": 0.25}, "n-gram [1, 2]": {"test/f1": 0.5}}


@pytest.fixture
def screen(monkeypatch):
    """What a person sees, of a terminal or of a file."""

    def make(terminal):
        out = io.StringIO()
        monkeypatch.setattr(rich, "_console", Console(file=out, width=100, force_terminal=terminal))
        return out

    return make


def run(folder, data, logger=False, **options):
    trainer = make_trainer(folder, logger=logger, **{"callbacks": [Baselines()], **options})
    trainer.test(Tiny(), data, verbose=False)
    return trainer


def test_table_scalars_and_file(tmp_path, screen):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = screen(terminal=False)
    logger = TensorBoardLogger(tmp_path, name="", version="")
    trainer = run(tmp_path, Data(), logger)
    loss = float(trainer.callback_metrics["test/loss"])
    text = out.getvalue()
    assert text.startswith("Test: the model beside its baselines")
    lines = [re.split(r"\s*[│┃]\s*", line)[1:-1] for line in text.splitlines() if "│" in line or "┃" in line]
    assert lines == [
        ["", "loss", "acc", "f1"],
        ["Tiny", f"{loss:#.4g}", "", ""],
        ["majority", "1.000e+06", "0.2500", ""],
        ["n-gram [1, 2]", "", "", "0.5000"],
    ]
    saved = json.loads((tmp_path / "baselines.json").read_text())
    assert saved == {"Tiny": {"test/loss": loss}, **Data().baselines()}
    assert list(saved) == ["Tiny", "majority", "n-gram [1, 2]"]
    logger.finalize("success")
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    logged = {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"] if tag.startswith("baseline/")}
    assert logged == {"baseline/majority/loss": 1e6, "baseline/majority/acc": 0.25, "baseline/n-gram [1, 2]/f1": 0.5}


def test_best_of_each_column_is_bold():
    rows = {
        "model": {"test/acc": 0.9, "test/mse": 0.2, "test/mae_units": 12345.678, "test/size": 1.0},
        "other": {"test/acc": 0.8, "test/mse": 0.1, "test/mae_units": float("nan"), "test/f1": 0.25, "test/size": 2.0},
        "third": {"test/acc": 0.9, "test/mse": 0.3},
    }
    columns = {column.header: list(column.cells) for column in comparison(rows).columns}
    assert list(columns) == ["", "acc", "mse", "mae_units", "size", "f1"]
    bold = {name: [cell.style == "bold" for cell in cells] for name, cells in columns.items()}
    assert bold == {
        "": [False] * 3,
        "acc": [True, False, True],
        "mse": [False, True, False],
        "mae_units": [True, False, False],
        "size": [False] * 3,  # nobody knows whether more is better
        "f1": [False, True, False],
    }
    assert [str(cell) for cell in columns["acc"]] == ["0.9000", "0.8000", "0.9000"]
    assert str(columns["mae_units"][0]) == "1.235e+04"


@pytest.mark.parametrize(
    ("options", "says"), [({"fast_dev_run": True}, ""), ({"limit_test_batches": 2}, "Baselines: left out")]
)
def test_not_of_a_part_of_the_test(tmp_path, screen, options, says):
    out, data = screen(terminal=False), Data()
    run(tmp_path, data, **options)
    assert data.calls == 0
    assert out.getvalue().startswith(says)
    assert "│" not in out.getvalue()


def test_data_without_baselines(tmp_path, screen):
    out = screen(terminal=False)
    run(tmp_path, TinyData(), CSVLogger(tmp_path))
    assert out.getvalue() == ""
    assert not list(tmp_path.rglob("baselines.json"))


@pytest.mark.parametrize("slow", [False, True])
def test_says_what_takes_so_long(tmp_path, screen, monkeypatch, slow):
    monkeypatch.setattr(module, "PATIENCE", 0.05 if slow else 1000.0)
    out, data = screen(terminal=True), Data()
    data.seconds = 0.5 if slow else 0.0
    run(tmp_path, data, callbacks=[ProgressBar(), Baselines()], enable_progress_bar=True)
    text = out.getvalue()
    assert ("Computing the baselines ..." in text) == slow
    assert "Test: the model beside" in text


def test_an_error_of_the_data_ends_the_waiting(tmp_path, screen):
    class Failing(Data):
        def baselines(self):
            raise ValueError("here")

    out = screen(terminal=True)
    with pytest.raises(ValueError, match="here"):
        run(tmp_path, Failing())
    assert "Computing" not in out.getvalue()
