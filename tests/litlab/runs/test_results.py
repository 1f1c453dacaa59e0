"""What runs have logged, and fits in processes of their own."""

import pytest
import yaml
from scipy import stats

from litlab.runs import results
from litlab.runs.children import explain_failure, run_child


def test_what_was_monitored_says_which_value_is_better():
    metrics = [{}, {"best": {"monitor": "val/loss", "mode": "max"}}]
    assert results.find_direction("test/loss", metrics) == 1


# What metrics.json holds, and what is shown of it
METRICS = yaml.safe_load("""
- - {best: &best {monitor: val/f1, mode: max, value: 0.9, checkpoint: best.ckpt},
     val: &val {val/f1: 0.9, val/loss: 1.5}, test: {test/f1: 0.8}, test_checkpoint: best.ckpt}
  - {val/f1: 0.9, val/loss: 1.5, test/f1: 0.8}
- - {best: *best, val: *val, test: {test/f1: 0.7}, test_checkpoint: last.ckpt}
  - {test/f1: 0.7}
- - {best: *best, val: {val/f1: 0.6}, val_checkpoint: last.ckpt}
  - {val/f1: 0.9}
- - {best: {<<: *best, monitor: train/loss}, val: *val}
  - {val/f1: 0.9, val/loss: 1.5, train/loss: 0.9}
- - {val: *val, val_checkpoint: last.ckpt}
  - *val
""")


@pytest.mark.parametrize(("metrics", "expected"), METRICS)
def test_metrics_are_of_one_checkpoint(metrics, expected):
    assert results.pick_metrics(metrics) == expected


def test_the_interval_is_that_of_students_t():
    values = [0.887, 0.8906, 0.8857]
    spread, error = results.measure_spread(values), stats.sem(values)
    assert spread.deviation == pytest.approx(3**0.5 * error)
    assert spread.interval == pytest.approx(stats.t.interval(0.95, 2, spread.mean, error))
    assert results.format_spread(results.measure_spread([0.5])) == ["0.5000", "-", "-", "1"]


def test_a_failure_is_one_line(tmp_path):
    log = tmp_path / "log"
    assert run_child("json.tool", "--none.json", log=log) == 2
    assert explain_failure(2, log).startswith("exit code 2: ")
    assert "--none.json" in explain_failure(2, log)
    log.write_text("loading\nerror: data.path: it is not there\nbye\n")
    assert explain_failure(2, log) == "data.path: it is not there"
    assert explain_failure(-9, log).startswith("killed by SIGKILL")
