"""``report --card``: the model card in Markdown."""

import re
from pathlib import Path

import pytest
import yaml

from litlab.runs.folder import read_json

PARTS = [
    "Model details", "Uses", "Bias, risks and limitations", "How to get started with the model", "Training details",
    "Evaluation", "Technical specifications", "Citation", "Model card contact",
]  # fmt: skip


@pytest.fixture
def card(run, logs):
    """Runs ``report --card`` and returns metadata, text and folder of the card."""

    def make(*arguments: object) -> tuple[dict, str, Path]:
        done = run("report", "--card", *arguments)
        assert done.code == 0, done.err
        path = Path(done.out.splitlines()[1])
        begin, head, text = path.read_text(encoding="utf-8").split("---\n", 2)
        assert begin == ""
        return yaml.safe_load(head), text, path.parent

    return make


def test_the_card_of_a_run(card, images_run):
    head, text, folder = card("images/version_0")
    assert folder == images_run.path / "report"
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS
    figures = re.findall(r"!\[[^\]]+\]\((.*?)\)", text)
    assert {"figures/confusion_matrix.svg", "figures/calibration.svg", "figures/curve_loss.svg"} <= set(figures)
    for figure in figures:
        content = (folder / figure).read_text(encoding="utf-8")
        assert content.startswith("<svg")
        assert "<style>" in content
        assert 'xmlns="http://www.w3.org/2000/svg"' in content
    assert sorted(figures) == sorted(f"figures/{path.name}" for path in (folder / "figures").iterdir())
    assert "model: SmallCNN | Classify images with one convolution." in text
    assert text.count("to be written]") >= 7  # what nobody but a person can know
    assert head["pipeline_tag"] == "image-classification"


def test_the_metadata_is_what_the_hub_reads(card, images_run):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    _, _, folder = card("images/version_0")
    found = huggingface_hub.ModelCard.load(folder / "card.md").data
    results = {result.metric_type: result.metric_value for result in found.eval_results}
    tested = read_json(images_run.metrics)["test"]
    assert results == {"accuracy": tested["test/acc"], "loss": tested["test/loss"], "f1": tested["test/f1"]}
    assert {result.task_type for result in found.eval_results} == {"image-classification"}


def test_generated_data_gives_no_results_for_the_hub(card):
    head, text, _ = card("spend")
    assert head["pipeline_tag"] == "tabular-regression"
    assert "model-index" not in head
    assert "**The data was GENERATED, not real" in text.partition("## Model details")[0]


def test_what_was_not_evaluated_is_not_in_the_card(card):
    head, text, _ = card("series", "--no-evaluate")
    assert set(head) == {"library_name", "tags"}
    assert "coverage.svg" not in text
    assert "### Results" in text


def test_a_run_without_a_test_leaves_the_results_to_a_person(card, images_run):
    write = {name: value for name, value in read_json(images_run.metrics).items() if name == "epochs"}
    images_run.metrics.write_text(yaml.safe_dump(write, default_flow_style=True))
    _, text, _ = card("images/version_0", "--no-evaluate")
    assert "test results: to be written]" in text


def test_nothing_in_a_cell_is_taken_for_markup(card, logs):
    path = logs / "text/version_0/baselines.json"
    path.write_text('{"me": {"test/acc": 0.1}, "a|b *c* [d](e) <i>": {"test/acc": 0.2}}')
    _, text, _ = card("text", "--no-evaluate")
    assert r"a\|b \*c\* \[d\](e) &lt;i&gt;" in text
