"""``report``: the page of a run of each kind."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from litlab.runs.folder import read_json

SECTIONS = ["what", "results", "curves", "data", "settings", "cost", "origin", "reproduce"]


def cells(section: str, first: str) -> list[str]:
    """The other cells of a row."""
    for row in re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL):
        found = [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        if found and found[0] == first:
            return found[1:]
    raise AssertionError(f"no row {first}: {section}")


def test_the_page_of_an_image_classifier(report, images_run):
    page = report("images/version_0")
    metrics = read_json(images_run.metrics)
    assert page.ids == [*SECTIONS[:2], "classes", "calibration", "mistakes", *SECTIONS[2:]]
    assert Path("lightning_logs/images/version_0/report/index.html").stat().st_size < 1_500_000
    assert "Images with one convolution." in page.text  # the comment of the config
    assert "model: SmallCNN Classify images with one convolution." in page.text
    assert "GENERATED" not in page.text
    assert cells(page.section("results"), "SmallCNN")[1] == f"{metrics['test']['test/acc']:.4g}"
    assert cells(page.section("data"), "class_3") == ["16", "4", "5"]
    assert cells(page.section("settings"), "model.width") == ["16", "8"]
    assert cells(page.section("settings"), "data.path")[0] == "default"
    assert "model.label_smoothing" not in page.section("settings").partition("<details>")[0]  # as it was shipped
    assert "<svg" in page.section("curves")
    assert "reproduce lightning_logs/images/version_0" in page.section("reproduce")
    assert "git checkout" in page.section("reproduce")
    assert read_json(images_run.provenance)["hardware"]["host"] not in page.section("origin")


def test_the_confusions_are_those_of_the_run(report, images_run):
    """The evaluation for the page counts what the test of the run has counted, and leaves the run as it was."""
    before = {path: path.read_bytes() for path in images_run.path.rglob("*") if path.is_file()}
    page = report("images/version_0")
    assert {path: path.read_bytes() for path in before} == before
    new = {path for path in images_run.path.rglob("*") if path.is_file()} - before.keys()
    assert {path.name for path in new} == {"index.html"}
    accuracy = read_json(images_run.metrics)["test"]["test/acc"]
    label = re.search(r"Confusion matrix: (\d+) of (\d+) correct", page.source)
    assert label
    assert int(label[2]) == 50
    assert int(label[1]) == round(50 * accuracy)
    recalls = [float(cells(page.section("classes"), f"class_{number}")[2]) for number in range(10)]
    assert np.mean(recalls) == pytest.approx(accuracy, abs=1e-3)


def test_samples_are_images_as_they_were(report, images):
    """The thumbnails are the pixels of the files, not what normalisation has made of them."""
    section = report("images/version_0").section("data")
    shown = [base64.b64decode(found) for found in re.findall(r"data:image/png;base64,([^\"]+)", section)]
    assert len(shown) == 16
    files = [np.asarray(Image.open(path), dtype=int) for path in sorted(images.glob("test/*/*.png"))]
    for content in shown:
        pixels = np.asarray(Image.open(io.BytesIO(content)), dtype=int)
        assert min(np.abs(pixels - file).max() for file in files) <= 1


def test_the_page_of_a_text_classifier_has_its_baselines_and_texts(report, logs):
    page = report("text")
    results = page.section("results")
    baseline = json.loads((logs / "text/version_0/baselines.json").read_text())["most frequent class"]
    assert cells(results, "most frequent class")[1] == f"{baseline['test/acc']:.4g}"
    assert 'class="best' in results
    assert re.search(r"<p>(word\d+ )*(sun|rain|snow|wind)", page.section("data"))
    assert "predicted class_" in page.section("data")
    assert "TF-IDF + linear SVM:" in page.source.partition("<nav")[0]  # beside the headline


def test_the_page_of_a_forecaster(report, logs):
    page = report("series")
    for name in ("forecasts", "errors", "coverage"):
        assert "<svg" in page.section(name)
    tested = read_json(logs / "series/version_0/metrics.json")["test"]
    means = [cells(page.section("errors"), column) for column in ("load", "heat")]
    assert np.mean([float(row[0]) for row in means]) == pytest.approx(tested["test/mse"], rel=1e-3)
    share = re.search(r"cover ([\d.]+)% of the truth", page.section("coverage"))
    assert share
    assert float(share[1]) == pytest.approx(100 * tested["test/coverage"], abs=0.06)
    assert "made to cover 90%" in page.section("coverage")
    assert "load, from 2024-" in page.section("forecasts")
    assert cells(page.section("results"), "seasonal naive")


def test_the_page_of_a_table_says_loudly_that_the_data_is_made_up(report):
    page = report("table")
    before, _, after = page.source.partition("<nav")
    assert re.search(r'<p class="error"[^>]*>The data was GENERATED, not real', before)
    assert "generated data" in before.partition('<dl class="tiles">')[2]
    assert "on generated data" in after
    assert cells(page.section("data"), "all") == ["4,200", "600", "1,200"]
    header = re.findall(r"<th scope=\"col\">(.*?)</th>", page.section("mistakes"))
    assert {"class", "predicted", "age", "income", "plan"} <= set(header)


def test_the_page_of_a_regressor(report, logs):
    page = report("spend")
    tested = read_json(logs / "spend/version_0/metrics.json")["test"]
    mae, rmse, *_ = cells(page.section("residuals"), "spend")
    assert float(mae) == pytest.approx(tested["test/mae"], rel=1e-3)
    assert float(rmse) ** 2 == pytest.approx(tested["test/mse"], rel=1e-2)
    errors = [
        abs(float(row[0]) - float(row[1]))
        for row in re.findall(r'<th scope="row"[^>]*>(-?[\d.]+)</th><td[^>]*>(-?[\d.]+)</td>', page.section("mistakes"))
    ]
    assert len(errors) == 10
    assert errors == sorted(errors, reverse=True)
    assert min(errors) > float(mae)


def test_it_needs_neither_the_checkpoint_nor_the_data_without_an_evaluation(report, images_run):
    for file in images_run.checkpoints.iterdir():
        file.unlink()
    page = report("images/version_0", "--no-evaluate", "--output", "here/page.html")
    assert Path("here/page.html").is_file()
    assert [name for name in page.ids if name not in SECTIONS] == ["files", "missing"]
    assert "confusion_matrix.png" in page.section("files")
    assert "data:image/png" in page.section("files")
    assert "--no-evaluate" in page.section("missing")
    assert "evaluated" not in page.section("what")
