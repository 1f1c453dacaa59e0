"""Which process writes files, by what launchers tell it."""

import pytest

from litlab.util.ranks import RANKS, is_first_process


@pytest.mark.parametrize(
    ("environment", "is_first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        # torchrun, which SLURM has started on two machines
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "1"}, True),
        ({"RANK": "2", "LOCAL_RANK": "0", "SLURM_PROCID": "0"}, False),
        ({"SLURM_PROCID": "3"}, False),
    ],
)
def test_one_process_of_a_run_is_the_first(monkeypatch, environment, is_first):
    for name in (*RANKS, "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == is_first
