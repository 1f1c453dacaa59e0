"""Files of predictions: by the end of their name, whole or not at all."""

import pandas as pd
import pytest
import torch

from litlab.data.predictions import SUFFIXES, check_output, write_outputs
from litlab.data.target import Classes, Numbers
from tests.litlab.data.conftest import refusal

READERS = {".csv": pd.read_csv, ".parquet": pd.read_parquet}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_holds_what_its_name_says(tmp_path, suffix):
    """`--output a.parquet` held CSV."""
    path = tmp_path / "folder" / f"out{suffix}"
    target = Classes(["kind"], ["cat", "dog"])
    write_outputs(path, {"row": [2, 3]}, target, torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    frame = READERS[suffix](path)
    columns = {"row": [2, 3], "prediction": ["dog", "cat"], "probability": [0.75, 1.0]}
    assert frame.to_dict("list") == {**columns, "cat": [0.25, 1.0], "dog": [0.75, 0.0]}


@pytest.mark.parametrize("number", [1000000003.25, 0.1, 1 / 3, -123456789.123456, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_digits_are_written_and_no_others(tmp_path, number, dtype):
    outputs = torch.tensor([[number]], dtype=dtype)
    write_outputs(tmp_path / "o.csv", {"row": [1]}, Numbers(["a"], [0.0], [1.0]), outputs)
    _, _, text = (tmp_path / "o.csv").read_text().strip().rpartition(",")
    assert torch.tensor(float(text), dtype=dtype).equal(outputs[0, 0])
    assert len(text.lstrip("-")) <= (13 if dtype == torch.float32 else 18)


def test_what_is_not_finite_is_not_written(tmp_path):
    outputs = torch.tensor([[0.5, 0.5], [torch.nan, 0.5]])
    message = refusal(
        write_outputs,
        tmp_path / "out.csv",
        {"file": ["a", "b"]},
        Classes(["a"], ["x", "y"]),
        outputs,
    )
    assert message.startswith(
        "predict: the model's output for b (1 in all) is NaN or infinite, so no file"
    )
    assert not any(tmp_path.iterdir())
    assert "ends in none of .csv, .parquet; " in refusal(check_output, tmp_path / "out.txt")


@pytest.mark.parametrize("columns", [1, 3])
def test_columns_that_are_no_classes(tmp_path, columns):
    target = Classes(["kind"], ["cat", "dog"])
    outputs = torch.zeros(2, columns)
    message = refusal(write_outputs, tmp_path / "out.csv", {"row": [1, 2]}, target, outputs)
    assert f"predict_step returns {columns} columns for 2 classes" in message
