"""``report`` of a run on data that was made up in the place of public files: never mixed up with the real ones."""

from pathlib import Path

import pytest

from litlab.runs.folder import RunFolder
from tests.litlab.conftest import BRIEF, CONFIGS

ALLOWED = ["--allow_modules", "tests"]  # of the class with the public file


@pytest.fixture
def stand_in(run) -> RunFolder:
    """A run on the stand-in of a series that can't be downloaded."""
    data = [
        "--data=tests.litlab.data.series.conftest.Etth1", "--data.dataset=null", "--data.fallback=generated",
        "--data.targets=[OT]", "--trainer.limit_train_batches=2", "--trainer.callbacks=null",
    ]  # fmt: skip
    done = run("fit", "--config", CONFIGS / "series.yaml", *data, *BRIEF)
    assert done.code == 0, done.err
    return RunFolder(Path("lightning_logs/series/version_0"))


def test_the_command_says_so_in_one_line(run, stand_in):
    done = run("report", "series", *ALLOWED)
    assert done.err == "warning: series/version_0: on GENERATED data; it says nothing about the real data\n"
    text = Path(done.out.strip()).read_text(encoding="utf-8")
    assert "The data was GENERATED, not real" in text
    assert '<section id="forecasts">' in text


def test_a_model_of_real_data_is_not_tested_on_the_stand_in(run, stand_in):
    """Where the files are gone since, and the config lets made-up data take their place."""
    provenance = stand_in.provenance
    provenance.write_text(provenance.read_text().replace('"generated": true', '"generated": false'))
    done = run("report", "series", *ALLOWED)
    gone = "note: The checkpoint can't be evaluated here: ETTh1.csv: it is not in data/ and can't be"
    assert done.err.startswith(gone)
    assert done.err.count("\n") == 1
    assert '<section id="forecasts">' not in Path(done.out.strip()).read_text(encoding="utf-8")
