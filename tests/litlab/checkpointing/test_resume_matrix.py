"""A run that is interrupted and resumed ends with the bits of one that was not: weights, averages, every curve.

pytest -k resume_matrix                a representative part
pytest -k resume_matrix -m matrix      all of it, with a table at the end

Schedules, averages and early stopping are in test_schedule_matrix.py, in one process.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import product

import pytest

from litlab.data import ImageData, TextData
from litlab.data.store import new_folder
from tests.litlab.checkpointing.resuming import (
    AT_CHECKPOINTS,
    PLACES,
    TRUSTED,
    Cell,
    Resuming,
    differences,
    outcome,
    printed,
)
from tests.litlab.conftest import CONFIGS

REPRESENTATIVE = [
    Cell("streamed", "kill", "inside", workers=2),
    Cell("images", "exception", "end"),
    Cell("images", "kill", "validation", ranks=2),
    Cell("text", "kill", "inside", workers=2),
    Cell("series", "SIGTERM", "inside"),
    Cell("series", "kill", "best"),
    Cell("series", "full", "removed, end"),
    Cell("series", "kill", "test"),
]
MATRIX = [
    *(
        Cell("images", *which)
        for which in product(
            ("kill", "SIGTERM", "exception"), ("inside", "last batch", "validation", "end"), (0, 2), (1, 2)
        )
    ),
    *(Cell("series", *which) for which in product(("kill", "exception"), AT_CHECKPOINTS, (0,), (1, 2))),
    *(
        Cell(experiment, "kill", which, *loading)
        for experiment in ("streamed", "streamed_text")
        for which in ("inside", "end")
        for loading in ((0, 2), (2, 2))
    ),
    *(Cell("series", "full", which) for which in ("best", "removed", "best, end", "removed, end")),
    *(
        Cell(experiment, *which)
        for experiment in ("images", "text", "series")
        for which in (("kill", "inside", 2, 2), ("SIGTERM", "last batch", 0, 1), ("exception", "end", 2, 1))
    ),
]


@pytest.fixture(scope="module")
def resuming(images, texts, series, tmp_path_factory) -> Resuming:
    batch = {"images": 22, "streamed": 23, "text": 18, "streamed_text": 19, "series": 96}
    folder = tmp_path_factory.mktemp("resuming")
    shards, text_shards = folder / "shards", folder / "text_shards"
    for written, place, size in (
        (ImageData("folder", str(images), cache="none", cache_dir=str(folder)), shards, 50_000),
        (TextData("csv", str(texts), vocab_size=500, cache_dir=str(folder)), text_shards, 1_000),
    ):
        written.prepare_data()
        written.setup()
        with new_folder(place) as staging:
            written.write_shards(staging, size)
    data = {
        "streamed": ["--data.dataset=shards", f"--data.path={shards}", "--data.shuffle_shards=3"],
        "streamed_text": [
            "--data=StreamedTexts", f"--data.path={text_shards}", "--data.shuffle_shards=3", "--data.max_tokens=16",
            "--data.long_texts=crop",
        ],
        "images": ["--data.dataset=folder", f"--data.path={images}"],
        "text": ["--data.dataset=csv", f"--data.path={texts}", "--data.max_tokens=16", "--data.long_texts=crop"],
        "series": [
            "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.val_fraction=0.2"
        ],
    }  # fmt: skip

    def own(cell: Cell) -> list[str]:
        streamed = cell.experiment.startswith("streamed")
        size = batch[cell.experiment] // cell.ranks + (streamed and cell.ranks > 1)
        name = {"streamed": "images", "streamed_text": "text"}.get(cell.experiment, cell.experiment)
        config = CONFIGS / f"{name}.yaml"
        return ["--config", str(config), *data[cell.experiment], f"--data.batch_size={size}"]

    return Resuming("auks", tmp_path_factory.mktemp("resuming"), own)


@pytest.mark.parametrize("cell", REPRESENTATIVE, ids=str)
def test_a_resumed_run_is_exact(cell, resuming):
    assert resuming.interrupted(cell)[1] == []


@pytest.fixture(scope="module")
def table(request) -> Iterator[list[str]]:
    """Rows that are printed when all tests are through."""
    rows = [f"{'experiment':13} {'interrupted by':14} {'in':12} {'workers':>7} {'ranks':>5} {'from step':>9}  resumed"]
    yield rows
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("", *rows, sep="\n")


@pytest.mark.matrix
@pytest.mark.parametrize("cell", MATRIX, ids=str)
def test_matrix(cell, resuming, table):
    step, differs = resuming.interrupted(cell)
    result = "exact" if not differs else f"{len(differs)} differ: {', '.join(differs[:3])}"
    table.append(
        f"{cell.experiment:13} {cell.how:14} {cell.place:12} {cell.workers:7} {cell.ranks:5} {step:9}  {result}"
    )
    assert differs == []


@pytest.mark.matrix
def test_a_command_that_starts_its_second_rank_itself(resuming, tmp_path):
    """As a person types it: nothing is imported already, and Lightning starts the other rank."""
    cell = Cell("images", "kill", "inside", ranks=2)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for arguments, plan, code in (
        (resuming.flags(cell), f"kill {PLACES['inside']}", -signal.SIGKILL),
        (["--resume", "last", *TRUSTED], "never", 0),
    ):
        with (tmp_path / "printed_0.txt").open("a") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "auks", "fit", *arguments], cwd=tmp_path, start_new_session=True,
                env={**environment, "INTERRUPT": plan}, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            assert process.wait(200) == code, printed(tmp_path)
        finally:
            if process.poll() != 0:
                os.killpg(process.pid, signal.SIGKILL)  # the other rank
            process.wait()
    assert differences(resuming.whole(cell), outcome(tmp_path)) == []
