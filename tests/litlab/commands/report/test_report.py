"""``report``: the page of a run of each kind, and of several runs."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest

from litlab.runs.folder import read_json, write_json
from litlab.util.text import format_number
from tests.litlab.commands.scaffold.tiny_project import list_contents

SECTIONS = ["results", "curves", "settings", "cost", "made-from", "how-to-repeat-it"]


def cells(section, first):
    """The other cells of a row."""
    rows = re.findall(r"<tr>(.*?)</tr>", section.replace("<wbr>", ""), re.DOTALL)
    texts = [re.findall(r"<t[hd][^>]*>(?:<[^>]+>)*([^<]*)", row) for row in rows]
    return {name: others for name, *others in texts}[first]


def test_image_classifier(report, images_run):
    (images_run.path / "mine.csv").write_text("step,error\n" + "1,<b>2</b>\n" * 40)
    (images_run.path / "numbers.csv").write_text("step,acc,of\n1,0.123456,0.5\n2,1,0.75\n3\n")
    (images_run.path / "predictions.csv").write_text("secret\n1\n")
    (images_run.path / "baselines.json").write_text('{"SmallCNN": {}, "mean": {"test/acc": 0.125}}')
    (images_run.path / "link.csv").symlink_to(images_run.path / "mine.csv")
    before = list_contents(images_run.path)
    page = report("images/version_0")
    assert page.ids == ["results", "pictures-and-tables", *SECTIONS[1:]]
    assert before.items() <= list_contents(images_run.path).items()
    assert "GENERATED" not in page.text

    # What the test of the run has counted, and what callbacks have left.
    accuracy = read_json(images_run.metrics)["test"]["test/acc"]
    assert cells(page.section("results"), "test/acc") == [format_number(accuracy), "0.1250"]
    shown = page.section("pictures-and-tables")
    recalls = [float(cells(shown, f"class_{number}")[2]) for number in range(10)]
    assert np.mean(recalls) == pytest.approx(accuracy, abs=1e-3)
    for name in ("calibration", "confusion_matrix"):
        assert (
            f"base64,{base64.b64encode((images_run.path / f'{name}.png').read_bytes()).decode()}"
            in shown
        )
    assert re.findall("<figcaption>(.*?)</figcaption>", shown) == [
        "calibration", "confusion matrix", "classes", "mine, the first 30 of 40 rows",
        "numbers",
    ]  # fmt: skip
    assert shown.count("&lt;b&gt;2&lt;/b&gt;") == 30
    rows = [cells(shown.partition("numbers</figcaption>")[2], str(step)) for step in (1, 2)]
    assert rows == [["0.1235", "0.5000"], ["1.0000", "0.7500"]]

    # Settings and origin.
    assert "\nmodel.width: 8\n" in page.section("settings")
    assert "reproduce lightning_logs/images/version_0" in page.section("how-to-repeat-it")
    assert read_json(images_run.provenance)["hardware"]["host"] not in page.section("made-from")


def test_generated_data_is_said_before_any_figure(run, logs):
    done = run("report table/version_0")
    assert done.err.startswith("warning: table/version_0: on GENERATED data;")
    text = Path(done.out.strip()).read_text(encoding="utf-8")
    assert '<p class="error">The data was GENERATED, not real' in text.partition("<nav")[0]


def test_files_alone_are_enough(report, images_run):
    """Damaged ones are named; nothing in them is markup, and secrets stay here."""
    for file in (*images_run.checkpoints.iterdir(), *images_run.path.glob("*.[pc][ns][gv]")):
        file.unlink()
    status = read_json(images_run.status) | {"status": "interrupted", "reason": "SIGTERM"}
    write_json(images_run.status, status)
    with images_run.config.open("a") as config:
        config.write("hf_token: abc123\nnote: <script>alert(1)</script>\n")
    page = report("images/version_0", "--output", "here/page.html")  # `Page` refuses scripts
    assert Path("here/page.html").is_file()
    assert page.ids == SECTIONS
    assert "<script>alert(1)</script>" in page.text
    assert "abc123" not in page.source
    assert "interrupted: the figures are those of its best checkpoint so far. SIGTERM" in page.text

    names = ("status.json", "metrics.json", "provenance.json", "config.yaml", "baselines.json")
    for name in names:
        (images_run.path / name).write_text("[")
    head = report(images_run.path).source.partition("<nav")[0]
    assert [name for name in names if f"version_0/{name}" not in head] == []


def test_several_runs(report, logs):
    names = ("table/version_0", "table/version_1", "spend")
    page = report(*names)
    assert page.ids == SECTIONS
    runs = [read_json(logs / name / "metrics.json")["test"]["test/acc"] for name in names[:2]]
    assert cells(page.section("results"), "test/acc")[:2] == [
        format_number(value) for value in runs
    ]
    assert cells(page.section("settings"), "seed_everything")[:2] == ["0", "1"]
    drawing = re.findall(r"svg\+xml;base64,([^\"]+)", page.section("curves"))[0]
    assert "table/version_1" in base64.b64decode(drawing).decode()  # in the legend
    assert Path("lightning_logs/reports/table-version_0_table-version_1_spend.html").is_file()
    page = report(*names[:2])
    assert page.source == report(*names[:2]).source  # each time the same
    mean, *_, count = cells(page.section("mean-and-spread"), "test/acc")
    assert (mean, count) == (format_number(float(np.mean(runs))), "2")
