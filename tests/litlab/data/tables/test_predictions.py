"""What a checkpoint carries, and what is predicted from it alone."""

import csv
import gzip

import numpy as np
import pytest
import torch

from litlab.data import TabularData
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.tables.conftest import HEADER, TableRecorder, make_rows, write_csv


def trained(make, make_trainer, folder, **options):
    data, model = make(**options), TableRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(folder / "model.ckpt")
    return data, folder / "model.ckpt"


def predict(make_trainer, checkpoint, source, outputs=1, **options):
    """From the checkpoint alone: the training rows are gone."""
    data, model = TabularData("csv", "gone.csv", target="gone", batch_size=3, **options), TableRecorder()
    data.predict_input, model.outputs = str(source), outputs
    return data, model, make_trainer().predict(model, data, ckpt_path=checkpoint, weights_only=True)


def test_predicting_from_the_checkpoint_alone(make, make_trainer, tmp_path, said):
    data, checkpoint = trained(make, make_trainer, tmp_path)
    state = torch.load(checkpoint, weights_only=True)["TabularData"]
    assert state == data.state_dict()
    assert state["categories"] == data.known_metadata.categories
    said.clear()
    # Other columns, another order, no target; a category that was never seen, numbers that are missing.
    lines = [["note", "kind", "city", "age", "size"], ["x", "flat", "Rom", "", "50"], ["", "flat", "Oslo", "3", ""]]
    lines += [["x", "house", "Bonn", "30", str(100 + n)] for n in range(6)]
    with gzip.open(tmp_path / "new.csv.gz", "wt", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(lines)
    other, model, outputs = predict(make_trainer, checkpoint, tmp_path / "new.csv.gz")
    assert (other.num_numbers, other.category_sizes, other.target_names) == (3, [4, 3], ["price"])
    path = tmp_path / "new.csv.gz"
    assert said == [
        f"{path}: categories that came less than twice in training count as unseen: 'city' (2 in 2 rows)",
        f"{path}: missing here, but never in training, so that the mean is taken: 'size' (1 row)",
    ]
    numbers, categories = model.column("predict", "numbers"), model.column("predict", "categories")
    assert categories[:2, 0].tolist() == [0, 0]
    assert numbers[:3, 2].tolist() == [1, 0, 0]
    metadata = data.known_metadata
    assert numbers[0, 0].item() == pytest.approx((50 - metadata.mean[0]) / metadata.std[0])
    assert numbers[1, 0] == 0

    other.write_predictions(outputs, str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["row", "predicted_price"]
    assert [row[0] for row in rows] == [str(n) for n in range(2, 10)]
    assert [float(row[1]) for row in rows] == pytest.approx(numbers[:, 0].tolist(), rel=1e-5)


def test_predicted_classes(make, make_trainer, tmp_path):
    _, checkpoint = trained(make, make_trainer, tmp_path, target="kind")
    source = write_csv(tmp_path / "new.csv", [HEADER, *make_rows(7, seed=1)])
    other, model, outputs = predict(make_trainer, checkpoint, source, outputs=2)
    other.write_predictions(outputs, str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["row", "prediction", "probability", "flat", "house"]
    assert [float(row["flat"]) for row in rows] == pytest.approx(
        model.column("predict", "numbers")[:, 0].sigmoid().tolist(), abs=1e-5
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], ": the file is empty; give a header and one row per sample"),
        ([HEADER], ": no rows below a header; give one row per sample"),
        (
            [["size", "Age", "city", "kind"], ["1", "2", "a", "b"]],
            ": there is no column 'age', only 'size', 'Age', 'city', 'kind'; the checkpoint needs it",
        ),
        (
            [HEADER, ["big", "1", "a", "b", ""], ["2", "1", "a", "b", ""], ["3", "1", "a", "b", ""]],
            ", line 2: column 'size' is 'big', not a number; correct or delete the row, or use --data.bad_rows drop",
        ),
        (
            [HEADER, ["", "1", "a", "b", ""], ["small", "1", "a", "b", ""]],
            ", line 3: column 'size' is 'small', not a number; the checkpoint needs numbers",
        ),
        (
            [HEADER, ["1e300", "1", "a", "b", ""]],
            ": column 'size' is 1e+300, too far from the training rows; correct or empty it",
        ),
    ],
)
def test_new_files_that_do_not_fit(make, make_trainer, tmp_path, lines, message):
    _, checkpoint = trained(make, make_trainer, tmp_path)
    source = write_csv(tmp_path / "new.csv", lines)
    assert refusal(predict, make_trainer, checkpoint, source) == f"{source}{message}"


def test_bad_rows_of_a_new_file_are_left_out_where_wanted(make, make_trainer, tmp_path):
    _, checkpoint = trained(make, make_trainer, tmp_path)
    rows = make_rows(5)
    rows[0][2] = "a city\non two lines"
    rows[1][0] = "big"
    source = write_csv(tmp_path / "new.csv", [HEADER, *rows])
    message = refusal(predict, make_trainer, checkpoint, source)
    assert message.startswith(f"{source}, line 4: column 'size' is 'big'")  # and row 3 of the predictions is left out
    other, _, outputs = predict(make_trainer, checkpoint, source, bad_rows="drop")
    other.write_predictions(outputs, str(tmp_path / "out.csv"))
    assert [line.split(",")[0] for line in (tmp_path / "out.csv").read_text().splitlines()] == [
        "row",
        "2",
        "4",
        "5",
        "6",
    ]


def test_other_rows_are_encoded_as_the_checkpoint_was_trained(make, make_trainer, tmp_path):
    trained_on, checkpoint = trained(make, make_trainer, tmp_path)
    rows = [[f"{2 * float(row[0])}", *row[1:]] for row in make_rows(seed=3)]
    data, model = make([HEADER, *rows]), TableRecorder()
    make_trainer().test(model, data, ckpt_path=checkpoint, weights_only=True, verbose=False)
    metadata, raw = trained_on.known_metadata, data.table.take(data.table.places("test"))
    expected = (raw.numbers["size"] - metadata.mean[0]) / metadata.std[0]
    np.testing.assert_allclose(model.column("test", "numbers")[:, 0].numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": "size"},
            "data.target: the checkpoint was trained for [price], here it is [size]; set it to [price]",
        ),
        (
            {"target": "price", "task": "classification", "rows": 2},
            "data.task: the checkpoint was trained for regression, here it is classification; set it to regression",
        ),
        ({"ignore": ["age"]}, "data: there is no input column 'age', which the checkpoint was trained with; add it"),
        (
            {"categories": ["city", "kind", "age"]},
            "data.categories: column 'age' holds categories here, the checkpoint was trained with numbers; correct the "
            "column, or leave it out of data.categories",
        ),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(make, options, message):
    state = prepared(make()).state_dict()
    rows = None
    if options.pop("rows", 0):
        rows = [HEADER, *([*row[:4], f"{n % 2}"] for n, row in enumerate(make_rows()))]
    data = prepared(make(rows, **options))
    assert refusal(data.load_state_dict, state) == message
