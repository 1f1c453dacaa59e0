"""Files of predictions: by the end of their name, whole or not at all."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from litlab.data.predictions import check_output, write_outputs
from litlab.data.target import Classes, Numbers
from tests.litlab.data.conftest import refusal


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 13), (torch.float64, 18)])
def test_all_digits_are_written_and_no_others(dtype, most):
    numbers = torch.tensor([1000000003.25, 0.1, 1 / 3, 123456789.123456, 1e-12], dtype=dtype)
    path, target = Path("o.csv"), Numbers(["a"], [0.0], [1.0])
    write_outputs(path, {"row": [*range(5)]}, target, numbers[:, None])
    texts = pd.read_csv(path, dtype=str)["predicted_a"]
    assert torch.tensor([*map(float, texts)], dtype=dtype).equal(numbers)
    assert texts.str.len().max() <= most


def test_ids_are_not_lost_under_the_name_of_a_prediction():
    inputs, target = {"row": [1], "predicted_a": ["x"]}, Numbers(["a"], [0.0], [1.0])
    write_outputs(Path("o.csv"), inputs, target, torch.ones(1, 1))
    assert Path("o.csv").read_text() == "row,id_predicted_a,predicted_a\n1,x,1.0\n"


def test_what_is_not_finite_or_of_other_classes_is_not_written(tmp_path):
    target, rows = Classes(["kind"], ["cat", "dog"]), {"file": ["a", "b"]}
    for outputs, message in (
        ([[0.5, 0.5], [torch.nan, 0.5]], "the model's output for b (1 in all) is NaN or infinite"),
        ([[0.0]] * 2, "predict_step returns 1 columns for 2 classes"),
    ):
        arguments = Path("out.csv"), rows, target, torch.tensor(outputs)
        assert message in refusal(write_outputs, *arguments)
    assert not any(tmp_path.iterdir())
    assert "ends in none of .csv, .parquet; " in refusal(check_output, Path("out.txt"))
