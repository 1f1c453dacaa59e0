"""``report`` of several runs: side by side, and their spread where only the seed differs."""

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest
from litlab.commands.report.several import short_names

from litlab.runs.folder import read_json, write_json
from tests.litlab.commands.report.test_report import cells

SEEDS = [f"images/version_{number}" for number in range(3)]


def values(logs: Path, name: str) -> list[float]:
    return [read_json(logs / run / "metrics.json")["test"][name] for run in SEEDS]


def test_runs_that_differ_in_their_seed_have_mean_and_spread(report, logs):
    page = report(*SEEDS)
    assert (logs / "reports/images-version_0_images-version_1_images-version_2.html").is_file()
    mean, deviation, interval, count = cells(page.section("seeds"), "test/loss")
    losses = values(logs, "test/loss")
    assert float(mean) == pytest.approx(statistics.mean(losses), rel=1e-3)
    assert deviation == f"{statistics.stdev(losses):.2g}"
    half = 4.30265 * statistics.stdev(losses) / 3**0.5  # Student's t with 2 degrees of freedom
    low, high = map(float, interval.split(" to "))
    assert (high - low) / 2 == pytest.approx(half, rel=0.02)
    assert count == "3"
    assert "seeds 0, 1, 2" in page.section("seeds")
    assert cells(page.section("settings"), "seed_everything") == ["0", "1", "2"]
    assert "GENERATED" not in page.text


def test_curves_of_all_runs_are_in_one_drawing(report, logs):
    page = report(*SEEDS)
    drawings = re.findall(r"<svg.*?</svg>", page.section("curves"), re.DOTALL)
    losses = next(svg for svg in drawings if 'aria-label="val/loss' in svg)
    assert [name for name in ("version_0", "version_1", "version_2") if f">{name}</text>" in losses] == [
        "version_0", "version_1", "version_2"
    ]  # fmt: skip
    assert losses.count('<path class="line') == 6  # the legend's and the curves
    assert ">epoch</text>" in losses
    best = re.findall(r'<td class="best[^>]*>([\d.]+)</td>', page.section("results"))
    assert f"{min(values(logs, 'test/loss')):.4g}" in best


def test_other_settings_are_no_spread(report, logs):
    page = report("images/version_0", "text", "--output", "both.html")
    assert "seeds" not in page.ids
    assert cells(page.section("settings"), "model") == ["SmallCNN", "SmallTextClassifier"]
    assert "Images with one convolution" not in page.section("runs")
    assert "model: SmallTextClassifier" in page.text


def test_other_data_is_no_spread(report, logs):
    path = logs / "images/version_1/provenance.json"
    made = read_json(path)
    write_json(path, {**made, "data": {**made["data"], "fingerprint": "of other files"}})
    page = report(*SEEDS)
    assert cells(page.section("seeds"), "test/acc")[-1] == "2"
    assert "seeds 0, 2:" in page.section("seeds")


def test_a_baseline_may_have_the_name_of_a_run(report, logs):
    for name in ("images", "text"):
        write_json(logs / name / "version_0/baselines.json", {"me": {}, "text": {"test/acc": 0.125}})
    found = cells(report("images/version_0", "text/version_0").section("results"), "test/acc")
    assert found == [*(f"{read_json(logs / run / 'metrics.json')['test']['test/acc']:.4g}"
                       for run in ("images/version_0", "text/version_0")), "0.125"]  # fmt: skip


def test_the_same_seed_twice_is_no_spread(report, logs):
    shutil.copytree(logs / "images/version_0", logs / "images/version_9")
    page = report("images/version_0", "images/version_9")
    assert "some of them the same seed" in page.section("seeds")
    assert "<table" not in page.section("seeds")


def test_a_group_of_seeds_stands_for_all_of_its_runs(report, logs):
    group = logs / "images/seeds_0"
    for seed in range(2):
        shutil.copytree(logs / f"images/version_{seed}", group / f"seed_{seed}/version_0")
    write_json(group / "repeat.json", {"members": [0, 1]})
    page = report("images/seeds_0")
    assert page.text.startswith("images/seeds_0")
    assert (logs / "reports/images-seeds_0.html").is_file()
    assert cells(page.section("runs"), "status") == ["finished", "finished"]
    assert re.findall(r'<th scope="col">(seed_\d)</th>', page.section("results").replace("<wbr>", ""))[:2] == [
        "seed_0", "seed_1"
    ]  # fmt: skip
    assert cells(page.section("seeds"), "test/acc")[-1] == "2"


def test_what_is_wrong_with_one_run_is_said_of_that_run(report, logs):
    write_json(logs / "images/version_1/status.json", {"status": "failed", "reason": "RuntimeError: <b>boom</b>"})
    (logs / "images/version_2/metrics.json").write_text("{")
    page = report(*SEEDS)
    assert "version_1: The run failed. RuntimeError: <b>boom</b>" in page.text
    assert "version_2: " in page.text
    assert "it holds no JSON object" in page.text
    assert cells(page.section("runs"), "status") == ["finished", "failed", "finished"]
    assert cells(page.section("results"), "test/acc")[2] == "-"


def test_the_same_run_twice_is_one_run(report, logs):
    page = report("images/version_0", str(logs / "images/version_0"), "--no-evaluate")
    assert page.text.startswith("images/version_0")
    assert "what" in page.ids


def test_names_are_as_short_as_they_can_be():
    assert short_names(["mine/version_0", "mine/version_1"]) == ["version_0", "version_1"]
    assert short_names(["mine/version_0", "other/version_0"]) == ["mine", "other"]
    assert short_names(["a/seeds_0/seed_0/version_0", "a/seeds_0/seed_1/version_2"]) == [
        "seed_0/version_0", "seed_1/version_2"
    ]  # fmt: skip
    assert short_names(["mine/version_0", "mine/version_0"]) == ["mine/version_0 (1)", "mine/version_0 (2)"]
    assert short_names(["mine", "mine/version_0"]) == ["mine", "version_0"]


def test_json_of_the_runs_is_left_alone(report, logs):
    before = {path: path.read_bytes() for path in logs.rglob("*.json")}
    report(*SEEDS)
    assert {path: path.read_bytes() for path in logs.rglob("*.json")} == before
    assert json.loads((logs / "images/version_0/metrics.json").read_text())["test"]
