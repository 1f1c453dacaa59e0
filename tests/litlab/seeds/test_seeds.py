"""`python -m auks fit --seeds`: stopped, continued, extended, with seeds that fail."""

import json
import re
from pathlib import Path

import pytest
from litlab.runs.seed_group import SeedGroup

from litlab.runs.folder import read_json
from litlab.util.spread import spreads
from litlab.util.torch_files import read_torch_file
from tests.conftest import Outcome
from tests.litlab.runs.conftest import held_by_another
from tests.litlab.seeds.conftest import trouble

GROUP = SeedGroup(Path("lightning_logs/series/seeds_0"))
pytestmark = pytest.mark.usefixtures("quick_fits")


def headings(out: str) -> list[str]:
    return [line for line in out.splitlines() if re.match(r"seed \d+ \(", line)]


def completed(done: Outcome) -> list[str]:
    """The headings of a command that ended well."""
    assert done.code == 0, done
    return headings(done.out)


def results(run: Path) -> dict:
    """Metrics and weights of a run, without what they cost."""
    metrics = read_json(run / "metrics.json")
    weights = read_torch_file(run / "checkpoints/last.ckpt")["state_dict"]
    kept = {name: metrics[name] for name in ("val", "test", "best", "epochs", "steps")}
    return kept | {name: weight.tolist() for name, weight in weights.items()}


def test_a_group_is_stopped_continued_and_extended(fit, run):
    """What comes out is bit for bit what single fits give."""
    trouble(seed_7="interrupted")
    done = fit("--seeds", "3,7")
    assert done.code == 130, done
    assert headings(done.out) == [
        "seed 3 (1 of 2): series/seeds_0/seed_3/version_0",
        "seed 7 (2 of 2): series/seeds_0/seed_7/version_0",
    ]
    assert done.err.endswith("SIGINT: stopped; the same command continues.\n")
    assert "series/seeds_0: 1 of 2 seeds" in done.out
    assert GROUP.runs()[7].state()["reason"] == "SIGINT"
    assert "series/seeds_0  1 of 2, interrupted" in run("runs").out

    trouble()
    assert completed(fit("--seeds", "3,7")) == [
        "seed 3 (1 of 2): finished before",
        "seed 7 (2 of 2), resumed: series/seeds_0/seed_7/version_0",
    ]

    done = fit("--seeds=7,2,3")
    assert [line.partition("):")[2].strip() for line in completed(done)] == [
        "finished before", "series/seeds_0/seed_2/version_0", "finished before"
    ]  # fmt: skip
    assert "series/seeds_0: 3 of 3 seeds" in done.out
    content = read_json(GROUP.file)
    assert content["seeds"] == [3, 7, 2]
    assert content["command"][-1] == "--seeds=7,2,3"
    metrics = [read_json(GROUP.path / f"seed_{seed}/version_0/metrics.json") for seed in (3, 7, 2)]
    expected = spreads(metrics)["test/mse"]
    assert content["metrics"]["test/mse"] == {
        "count": 3, "mean": pytest.approx(expected.mean), "deviation": pytest.approx(expected.deviation),
        "interval": pytest.approx(list(expected.interval or ())),
    }  # fmt: skip
    assert f"{expected.mean:.4g}  {expected.deviation:.2g}" in re.sub(" {2,}", "  ", done.out)

    assert [row["run"] for row in json.loads(run("runs", "--json").out)] == ["series/seeds_0"]
    assert len(json.loads(run("runs", "series/seeds_0", "--json").out)) == 3
    for seed in (3, 7):
        assert fit("--seed_everything", seed).code == 0
    single = [results(Path(f"lightning_logs/series/version_{number}")) for number in (0, 1)]
    assert single == [results(GROUP.path / f"seed_{seed}/version_0") for seed in (3, 7)]
    assert single[0] != single[1]
    assert "seed_2/version_0 is one seed of series/seeds_0." in run("fit", "--resume", "series/seeds_0").err


def test_a_seed_that_fails(fit, run):
    """The others go on; the same command tries it again from its start, unless another one is at it."""
    trouble(seed_0="raises")
    done = fit("--seeds", "0,1")
    assert done.code == 1, done
    assert len(headings(done.out)) == 2
    assert "seed 0 failed (RuntimeError: it broke); the other seeds go on." in done.err
    assert "series/seeds_0: 1 of 2 seeds" in done.out
    assert "seed 0: RuntimeError: it broke" in run("runs").out

    trouble()
    assert completed(fit("--seeds", "0,1")) == [
        "seed 0 (1 of 2), from the start, as it failed (RuntimeError: it broke): series/seeds_0/seed_0/version_1",
        "seed 1 (2 of 2): finished before",
    ]
    assert "series/seeds_0  2 of 2  " in run("runs").out

    with held_by_another(GROUP.path):
        done = fit("--seeds", "0,1")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("series/seeds_0: another command works on these seeds; wait until it ends, or stop it\n")


def test_a_fit_that_is_refused_runs_once_and_leaves_nothing(fit):
    done = fit("--data.path=nowhere.csv", "--seeds", "0,1,2")
    assert done.code == 2, done
    assert len(headings(done.out)) == 1
    assert [line for line in done.err.splitlines() if line.startswith("error: data.path: ")]
    assert not Path("lightning_logs").exists()
