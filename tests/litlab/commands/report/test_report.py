"""``report``: the page of a run of each kind, and of several runs."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from litlab.runs.folder import RunFolder, read_json
from tests.litlab.conftest import BRIEF, CONFIGS

SECTIONS = ["results", "curves", "settings", "cost", "made-from", "how-to-repeat-it"]


def cells(section: str, first: str) -> list[str]:
    """The other cells of a row."""
    rows = re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL)
    texts = [re.findall(r"<t[hd][^>]*>(?:<[^>]+>)*([^<]*)", row) for row in rows]
    return {name: others for name, *others in texts}[first]


def test_image_classifier(report, images_run, images):
    before = {path: path.read_bytes() for path in images_run.path.rglob("*") if path.is_file()}
    page = report("images/version_0")
    assert page.ids == ["results", "classes", "calibration", "most-confident-mistakes", *SECTIONS[1:]]
    assert {path: path.read_bytes() for path in before} == before
    assert "GENERATED" not in page.text

    # What the test of the run has counted.
    accuracy = read_json(images_run.metrics)["test"]["test/acc"]
    assert cells(page.section("results"), "test/acc")[0] == f"{accuracy:.4g}"
    recalls = [float(cells(page.section("classes"), f"class_{number}")[2]) for number in range(10)]
    assert np.mean(recalls) == pytest.approx(accuracy, abs=1e-3)
    assert f"{accuracy:.1%} of the predictions are right" in page.section("calibration")

    # The images are the pixels of the files, not what normalisation has made of them.
    sources = re.findall(r"data:image/png;base64,([^\"]+)", page.section("most-confident-mistakes"))
    files = [np.asarray(Image.open(path), dtype=int) for path in sorted(images.glob("test/*/*.png"))]
    assert len(sources) == 12
    for source in sources:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source))), dtype=int)
        assert min(np.abs(pixels - file).max() for file in files) <= 1

    # Settings and origin.
    assert cells(page.section("settings"), "model.width") == ["16", "8"]
    assert cells(page.section("settings"), "data.path") == ["-", str(images)]  # that only flags have
    assert "reproduce lightning_logs/images/version_0" in page.section("how-to-repeat-it")
    assert read_json(images_run.provenance)["hardware"]["host"] not in page.section("made-from")


def test_forecaster(report, logs):
    page = report("series")
    tested = read_json(logs / "series/version_0/metrics.json")["test"]
    assert page.section("forecasts").count("data:image/svg+xml") == 6
    share = re.search(r"cover ([\d.]+)% of the truth", page.section("coverage"))
    assert share
    assert float(share[1]) == pytest.approx(100 * tested["test/coverage"], abs=0.06)
    assert "made to cover 90%" in page.section("coverage")


def test_regressor(report, logs):
    page = report("spend")
    mae = read_json(logs / "spend/version_0/metrics.json")["test"]["test/mae"]
    captions = re.findall(r"<figcaption>(-?[\d.e+]+), is (-?[\d.e+]+)</figcaption>", page.section("largest-errors"))
    errors = [abs(float(predicted) - float(true)) for predicted, true in captions]
    assert len(errors) == 12
    assert errors == pytest.approx(sorted(errors, reverse=True), rel=1e-3)
    assert min(errors) > mae


def test_generated_data_is_said_before_any_figure(run, logs):
    done = run("report", "table/version_0")
    assert done.err == "warning: table/version_0: on GENERATED data; it says nothing about the real data\n"
    text = Path(done.out.strip()).read_text(encoding="utf-8")
    assert '<p class="error">The data was GENERATED, not real' in text.partition("<nav")[0]
    assert '<section id="classes">' in text


def test_a_model_of_real_data_is_not_tested_on_the_stand_in(run):
    """Where the files are gone since, and the config lets made-up data take their place."""
    data = [
        "--data=tests.litlab.data.series.conftest.Etth1", "--data.dataset=null", "--data.fallback=generated",
        "--data.targets=[OT]", "--trainer.limit_train_batches=2", "--trainer.callbacks=null",
    ]  # fmt: skip
    assert run("fit", "--config", CONFIGS / "series.yaml", *data, *BRIEF).code == 0
    provenance = RunFolder(Path("lightning_logs/series/version_0")).provenance
    provenance.write_text(provenance.read_text().replace('"generated": true', '"generated": false'))
    done = run("report", "series", "--allow_modules", "tests")
    gone = "note: The checkpoint can't be evaluated here: ETTh1.csv: it is not in data/ and can't be"
    assert (done.err.startswith(gone), done.err.count("\n")) == (True, 1)
    assert '<section id="forecasts">' not in Path(done.out.strip()).read_text(encoding="utf-8")


def test_files_alone_are_enough(report, images_run):
    """Damaged ones are named; nothing in them is markup, and secrets stay here."""
    for file in images_run.checkpoints.iterdir():
        file.unlink()
    assert report("images/version_0").ids == [*SECTIONS, "what-is-left-out"]
    status = images_run.status.read_text().replace('"finished"', '"interrupted"').replace("null", '"SIGTERM"', 1)
    images_run.status.write_text(status)
    config = images_run.config.read_text()
    images_run.config.write_text(config + "hf_token: abc123\nnote: <script>alert(1)</script>\n")
    page = report("images/version_0", "--no-evaluate", "--output", "here/page.html")  # `Page` refuses scripts
    assert Path("here/page.html").is_file()
    assert page.ids == SECTIONS
    assert "<script>alert(1)</script>" in page.text
    assert "abc123" not in page.source
    assert "interrupted: the figures are those of its last complete epoch. SIGTERM" in page.text

    names = ("status.json", "metrics.json", "provenance.json", "config.yaml", "baselines.json")
    for name in names:
        (images_run.path / name).write_text("[")
    head = report(images_run.path, "--no-evaluate").source.partition("<nav")[0]
    assert [name for name in names if f"version_0/{name}" not in head] == []


@pytest.mark.parametrize(
    ("flags", "batch_size", "is_described"),
    [
        (["--seed_everything=3"], 256, True),
        (["--data.rows=400"], 256, False),
        (["--config", "overlay.yaml"], 256, False),
        ([], 128, False),  # the config is another since
    ],
)
def test_the_comment_of_the_config_stands_where_it_speaks_of_this_run(
    report, logs, monkeypatch, flags, batch_size, is_described
):
    """The shipped comment names data, shapes and expected results."""
    monkeypatch.setattr("litlab.commands.report.page.list_curves", lambda *_: [])  # half a second each time
    Path("overlay.yaml").write_text("threads: 1\n")
    provenance, config = (logs / "table/version_0" / name for name in ("provenance.json", "config.yaml"))
    config.write_text(config.read_text().replace("batch_size: 256", f"batch_size: {batch_size}"))
    command = ["python", "-m", "auks", "fit", "--config", str(CONFIGS / "table.yaml"), *flags]
    origin = read_json(provenance) | {"command": command}
    provenance.write_text(json.dumps(origin))
    page = report("table/version_0", "--no-evaluate")
    comment = (CONFIGS / "table.yaml").read_text().partition("\n")[0].removeprefix("# ")
    assert (comment in page.text) == is_described
    lead = page.source.partition('<p class="lead">')[2].partition("</p>")[0]
    assert lead.startswith("Classifier on ") != is_described


def test_several_runs(report, logs):
    names = ("table/version_0", "table/version_1", "spend")
    page = report(*names)
    assert page.ids == SECTIONS
    runs = [read_json(logs / name / "metrics.json")["test"]["test/acc"] for name in names[:2]]
    assert cells(page.section("results"), "test/acc")[:2] == [f"{value:.4g}" for value in runs]
    assert cells(page.section("settings"), "seed_everything")[:2] == ["0", "1"]
    drawing = re.findall(r"svg\+xml;base64,([^\"]+)", page.section("curves"))[0]
    assert "table/version_1" in base64.b64decode(drawing).decode()  # in the legend
    assert Path("lightning_logs/reports/table-version_0_table-version_1_spend.html").is_file()
    page = report(*names[:2])
    assert page.source == report(*names[:2]).source  # each time the same
    mean, *_, count = cells(page.section("mean-and-spread-over-seeds"), "test/acc")
    assert (mean, count) == (f"{np.mean(runs):.4g}", "2")
