"""Files of predictions: by the end of their name, whole or not at all."""

import os
import stat

import pandas as pd
import pytest
import torch

from litlab.data.predictions import SUFFIXES, check_output, write_classes, write_predictions
from litlab.errors import UserError

READERS = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".xlsx": pd.read_excel}
ODD = ["File", "file", "prediction", "probability", "row", "class_file", "a,b", 'a"b', "a\nb"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_holds_what_its_name_says(tmp_path, suffix):
    """`--output a.parquet` held CSV."""
    path = tmp_path / "folder" / f"out{suffix}"
    write_classes(path, {"row": [2, 3]}, ["cat", "dog"], torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    frame = pd.read_json(path, lines=True) if suffix == ".jsonl" else READERS[suffix](path)
    assert frame.to_dict("list") == {
        "row": [2, 3],
        "prediction": ["dog", "cat"],
        "probability": [0.75, 1.0],
        "cat": [0.25, 1.0],
        "dog": [0.75, 0.0],
    }


def test_other_ends_are_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"out.txt ends in none of .csv, .parquet, .xlsx, .jsonl; name a file that does"
    ):
        check_output(tmp_path / "out.txt")


def test_columns_are_unlike_each_other(tmp_path):
    write_classes(tmp_path / "out.csv", {"file": ["x.png"]}, ODD, torch.full((1, len(ODD)), 1 / len(ODD)))
    columns = list(pd.read_csv(tmp_path / "out.csv"))
    assert columns == ["file", "prediction", "probability", *(f"class_{name}" for name in ODD)]


def test_what_is_no_number_is_not_written(tmp_path):
    outputs = torch.tensor([[0.5, 0.5], [torch.nan, 0.5]])
    with pytest.raises(
        UserError, match=r"^predict: the model's output for b \(1 in all\) is NaN or infinite, so no file"
    ):
        write_classes(tmp_path / "out.csv", {"file": ["a", "b"]}, ["x", "y"], outputs)
    assert not list(tmp_path.iterdir())


def test_a_file_has_the_usual_mode_and_is_replaced(tmp_path):
    path, mask = tmp_path / "out.csv", os.umask(0o027)
    try:
        for name in ("x", "y"):
            write_predictions(path, {"file": [name]})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(mask)
    assert path.read_text() == "file\ny\n"
    assert list(tmp_path.iterdir()) == [path]
