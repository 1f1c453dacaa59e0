"""Tables of predictions: columns unlike each other, modes of files, and what is not written."""

import csv
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from litlab.data.table import class_columns, forecast_columns, is_predictions, write_classes, write_table

from litlab.data.series.predictions import write_forecast
from litlab.errors import UserError


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its(tmp_path):
    mask = os.umask(0o027)
    try:
        write_table(tmp_path / "out.csv", ["file"], [["x"]])
        assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o640
        (tmp_path / "out.csv").chmod(0o600)
        write_table(tmp_path / "out.csv", ["file"], [["y"]])
        assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


# ---- columns

ODD = ["File", "file", "prediction", "probability", "row", "text", "class_file", "class_row", "a,b", 'a"b', "a\nb", ""]
ONE = torch.full((1, len(ODD)), 1 / len(ODD))
STATE = {"mean": [0.0] * 5, "scale": [1.0] * 5, "utc": False, "step": {"seconds": 3600}, "time_column": "x_upper"}
TARGETS = ["load", "load_lower", "load__lower", "x", "prediction"]


def write(path: Path, kind: str, outputs: torch.Tensor | None = None) -> None:
    if kind == "images":
        files = [Path("x.png")]
        write_classes(path, {"file": files}, files, ODD, ONE if outputs is None else outputs)
    elif kind == "texts":
        columns = {"row": [2], "text": ["a text"]}
        write_classes(path, columns, ["row 2"], ODD, ONE if outputs is None else outputs)
    else:
        times = torch.arange(1).numpy().astype("datetime64[s]")
        outputs = torch.arange(15.0).reshape(1, 5, 3) if outputs is None else outputs
        write_forecast(path, SimpleNamespace(**STATE, targets=TARGETS), times, outputs)


@pytest.mark.parametrize("kind", ["images", "texts", "series"])
def test_columns_are_unlike_each_other(tmp_path, kind):
    write(tmp_path / "out.csv", kind)
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, row = csv.reader(stream)
    assert len(set(header)) == len(header) == len(row)
    if kind == "series":
        assert header[:4] == ["x_upper", "load", "load___lower", "load___upper"]
    else:
        assert header[-len(ODD) :] == [f"class_{name}" for name in ODD]
    assert is_predictions(tmp_path / "out.csv")


def test_columns_are_plain_where_they_can_be():
    assert class_columns(["file", "prediction"], ["class_file", "cat"]) == ["file", "prediction", "class_file", "cat"]
    assert forecast_columns("time", ["a", "b"]) == ["time", "a", "a_lower", "a_upper", "b", "b_lower", "b_upper"]


# ---- what the model puts out


@pytest.mark.parametrize(
    ("kind", "outputs", "first"),
    [
        ("images", ONE * torch.nan, "x.png"),
        ("texts", ONE * torch.inf, "row 2"),
        ("series", torch.full((1, 5, 3), torch.nan), "1970-01-01 00:00:00"),
        ("series", torch.arange(15.0).reshape(1, 5, 3).where(torch.arange(3) < 2, torch.nan), "1970-01-01 00:00:00"),
    ],
)
def test_what_is_no_number_is_not_written(tmp_path, kind, outputs, first):
    with pytest.raises(UserError, match=f"^predict: the model's output for {first} is NaN or infinite, so no file"):
        write(tmp_path / "out.csv", kind, outputs)
    assert not list(tmp_path.iterdir())


def test_forecasts_without_bounds_have_the_same_columns(tmp_path):
    outputs = torch.arange(15.0).reshape(1, 5, 3).where(torch.arange(3) < 1, torch.nan)
    write(tmp_path / "out.csv", "series", outputs)
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "1970-01-01 00:00:00,0,,,3,,,6,,,9,,,12,,"
    assert is_predictions(tmp_path / "out.csv")
