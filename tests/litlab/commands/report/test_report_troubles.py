"""``report`` of runs that failed, are damaged, or hold what is meant to harm: always a page, never a traceback."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import yaml
from litlab.commands.report.single import report_on
from PIL import Image

from litlab.commands.report.blocks import Evaluation
from litlab.commands.report.facts import read_facts
from litlab.runs.folder import RunFolder, read_json, write_json
from tests.litlab.commands.report.test_report import cells
from tests.litlab.conftest import CONFIGS

EVIL = '<script>alert("x")</script>'


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"status": "failed", "reason": "RuntimeError: it broke"}, "The run failed. RuntimeError: it broke"),
        ({"status": "interrupted", "reason": "SIGTERM"}, "The run was interrupted: the figures are those of its"),
        ({"status": "running"}, "The process of the run was killed"),
    ],
)
def test_a_run_that_did_not_finish(report, images_run, status, said):
    write_json(images_run.status, status)
    page = report("images/version_0", "--no-evaluate")
    assert said in page.text.partition("What it is")[0]
    assert page.section("results")


def test_a_running_run_is_not_evaluated(report, images_run):
    write_json(images_run.status, {"status": "running"})
    with images_run.lock():
        page = report("images/version_0")
    assert "The run is not finished" in page.text
    assert "classes" not in page.ids
    assert "still running" in page.section("missing")


def test_a_run_without_a_test(report, images_run):
    metrics = read_json(images_run.metrics)
    tested = metrics.pop("test")
    write_json(images_run.metrics, metrics)
    assert "Test results: the run has none." in report("images/version_0", "--no-evaluate").section("missing")
    page = report("images/version_0")  # its checkpoint can still be tested
    assert "Test of the checkpoint, made for this report" in page.section("results")
    assert f"{tested['test/acc']:.4g}" in page.section("results")


def test_a_run_on_a_part_of_its_data(report, images_run):
    config = yaml.safe_load(images_run.config.read_text())
    config["trainer"] |= {"limit_test_batches": 1, "limit_train_batches": 1.0, "limit_val_batches": None}
    images_run.config.write_text(yaml.safe_dump(config))
    before = report("images/version_0", "--no-evaluate").text.partition("What it is")[0]
    assert "a part of its data (trainer.limit_test_batches: 1):" in before


def test_a_run_without_its_data(report, images_run):
    config = yaml.safe_load(images_run.config.read_text())
    config["data"]["init_args"]["path"] = "moved/away"
    images_run.config.write_text(yaml.safe_dump(config))
    page = report("images/version_0")
    assert "can&#39;t be evaluated here: " in page.section("missing")
    assert "moved/away" in page.section("missing")
    assert "confusion_matrix.png" in page.section("files")


def test_a_run_whose_classes_are_gone(report, images_run):
    text = images_run.config.read_text()
    images_run.config.write_text(text.replace("auks.images.SmallCNN", "auks.images.DeletedCNN"))
    page = report("images/version_0")
    assert "This class is no longer in the project" in page.section("what")
    assert "DeletedCNN" in page.section("missing")
    assert "<svg" in page.section("curves")
    assert page.section("results")


FILES = ["metrics.json", "status.json", "provenance.json", "config.yaml", "baselines.json", "confusion_matrix.png"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"\x00\xff\xfe"])
def test_a_damaged_file(report, images_run, name, content):
    (images_run.path / name).write_bytes(content)
    page = report("images/version_0", "--no-evaluate")
    assert re.search(rf"{name}(:| is damaged|[^.]* can't be read)", page.text)
    assert page.section("curves")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("provenance.json", '{"hardware": {"ranks": "two"}}'),
        ("provenance.json", '{"started": 5}'),
        ("baselines.json", '{"me": {}, "other": {"test/acc": "high"}}'),
        ("baselines.json", '{"me": {}, "other": [0.5]}'),
    ],
)
def test_a_file_with_an_entry_of_another_type(report, images_run, name, content):
    (images_run.path / name).write_text(content)
    assert f"{name} is damaged (" in report("images/version_0", "--no-evaluate").text


def test_baselines_that_are_no_numbers(report, images_run):
    write_json(images_run.path / "baselines.json", {"me": {}, "other": {"test/loss": None, "test/acc": 0.5}})
    page = report("images/version_0", "--no-evaluate")
    assert cells(page.section("results"), "other") == ["-", "0.5", "-"]


@pytest.mark.parametrize("name", FILES[:5])
def test_a_file_of_something_else(report, images_run, name):
    (images_run.path / name).write_text('{"test": 3, "data": 4, "model": [5]}')
    assert report("images/version_0", "--no-evaluate").section("cost")


def test_a_folder_with_next_to_nothing(report, tmp_path):
    run = RunFolder(Path("lightning_logs/images/version_7"))
    run.checkpoints.mkdir(parents=True)
    write_json(run.status, {})
    page = report("images/version_7")
    assert "config.yaml is missing" in page.text
    assert "checkpoint" in page.section("missing")
    assert "Curves: there are no event files" in page.section("missing")


@pytest.mark.parametrize("kept", [0, 40, 1500])
def test_event_files_that_are_cut_off(report, images_run, kept):
    for path in images_run.path.glob("events*"):
        path.write_bytes(path.read_bytes()[:kept] + b"\x00garbage" * (kept > 0))
    page = report("images/version_0", "--no-evaluate")
    assert ("curves" in page.ids) == (kept == 1500)


def test_large_pictures_get_smaller_or_are_left_out(report, images_run):
    noise = np.random.default_rng(0).integers(0, 255, (800, 1000, 3), dtype=np.uint8)
    for name in ("noise_a.png", "noise_b.png"):
        Image.fromarray(noise).save(images_run.path / name)
    assert (images_run.path / "noise_a.png").stat().st_size > 1_000_000
    page = report("images/version_0", "--no-evaluate")
    assert len(page.source) < 1_500_000
    assert "data:image/webp;base64," in page.section("files")
    assert "noise_b.png, in the run's folder, is left out" in page.text


def test_a_picture_that_would_fill_the_memory(report, images_run):
    """A small file that says it has 60,000 x 60,000 pixels."""
    chunks = struct.pack(">4sIIBBBBB", b"IHDR", 60_000, 60_000, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(1000))
    content = b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )
    (images_run.path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    assert "bomb.png can't be read" in report("images/version_0", "--no-evaluate").text


def test_predictions_that_the_report_does_not_know(images_run):
    """A model of one's own, whose test_step returns something else."""
    evaluation = Evaluation(metrics={"test/iou": 0.5}, task="", parameters=(7, 7), sections=[], samples=[])
    sections = {section.name: section for section in report_on(read_facts(images_run), evaluation, "").sections}
    assert not {"classes", "forecasts", "residuals"} & sections.keys()
    assert "no logits, forecast or predicted" in str(sections["missing"].blocks)


def test_whatever_a_run_says_is_shown_and_never_run(report, images_run):
    """Script and markup in settings, names, messages, tables and baselines stay text."""
    config = yaml.safe_load(images_run.config.read_text())
    config["experiment"] = config["model"]["init_args"][EVIL] = EVIL
    images_run.config.write_text(yaml.safe_dump(config))
    write_json(images_run.status, {"status": EVIL, "reason": EVIL})
    made = read_json(images_run.provenance)
    made["command"] = [*made["command"], f"--{EVIL}={EVIL}"]
    made["data"]["description"], made["commit"] = f"]]> {EVIL} <img src=http://x onerror=y>", EVIL
    write_json(images_run.provenance, made)
    metrics = read_json(images_run.metrics)
    write_json(images_run.metrics, {**metrics, "test": {f"test/{EVIL}": 1.0}, "best": None})
    write_json(images_run.path / "baselines.json", {"me": {}, EVIL: {f"test/{EVIL}": 2.0}})
    (images_run.path / "evil.csv").write_text(f'"{EVIL}",b\n"{EVIL}",\'"><svg onload=z>\n')
    (images_run.path / "RANDOM_WEIGHTS.txt").write_text(EVIL)
    page = report("images/version_0", "--no-evaluate", "--card")
    assert "script" not in page.tags
    assert page.text.count(EVIL) >= 8
    assert "<script" not in page.source
    card = Path("lightning_logs/images/version_0/report/card.md").read_text()
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", card, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside.partition("\n---\n")[2]


def test_names_of_classes_and_texts_are_text(run, report, texts, tmp_path):
    own = tmp_path / "evil.csv"
    own.write_text(texts.read_text().replace("class_1", f"</td>{EVIL}").replace("rain", "<b>rain</b>"))
    flags = ["--data.dataset=csv", f"--data.path={own}", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    assert run("fit", "--config", CONFIGS / "text.yaml", *flags).code == 0
    page = report("text/version_1")
    assert EVIL in page.text
    assert "<b>rain</b>" in page.text
    assert "b" not in page.tags


def test_secrets_are_masked(report, images_run):
    config = yaml.safe_load(images_run.config.read_text())
    config["data"]["init_args"] |= {"api_key": "abc123secret", "path": "s3://me:abc123secret@bucket/x"}
    images_run.config.write_text(yaml.safe_dump(config))
    page = report("images/version_0", "--no-evaluate")
    assert "abc123secret" not in page.source
    assert "***" in page.text


def test_secrets_of_the_config_that_it_was_started_with_are_masked(report, images_run, tmp_path):
    """The run's own config has them masked, so they are a difference."""
    config = tmp_path / "secret.yaml"
    config.write_text(
        "# Uses api_key: abc123secret.\ndata: {class_path: ImageData, init_args: {path: 's3://me:abc123secret@bucket/x'}}\n"
    )
    made = read_json(images_run.provenance)
    write_json(images_run.provenance, {**made, "command": ["python", "-m", "auks", "fit", "--config", str(config)]})
    page = report("images/version_0", "--no-evaluate")
    assert cells(page.section("settings"), "data.path")[0] == "s3://***@bucket/x"
    assert "abc123secret" not in page.source


def test_arguments_that_are_wrong(run, logs):
    for arguments, said in (
        (["nothing"], "nothing: there is no such run"),
        (["images/version_0", "text", "--card"], "--card: a model card is about one run"),
        (["images/version_0", "--output", str(logs)], "is a folder"),
        (["images/version_0", "--pdf"], "unrecognized arguments: --pdf"),
        ([], "required"),
    ):
        done = run("report", *arguments)
        assert done.code == 2
        assert said in done.err
        assert done.err.count("\n") == 1
        assert done.out == ""
