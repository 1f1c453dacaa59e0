"""What each worker of a sweep may use."""

import os

import pytest

from litlab.commands.sweep.workers import devices_of, threads_of_each


@pytest.mark.parametrize(
    ("visible", "workers", "shares"),
    [
        ("0,1,2,3", 2, ["0,1", "2,3"]),
        ("4,5", 2, ["4", "5"]),
        ("4,5", 3, ["4", "5", "4"]),
        ("0", 2, ["0", "0"]),
    ],
)
def test_devices_are_shared_out(monkeypatch, visible, workers, shares):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [devices_of(number, workers)["CUDA_VISIBLE_DEVICES"] for number in range(workers)] == shares


@pytest.mark.parametrize("visible", ["", "-1"])
def test_no_devices(monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices_of(0, 2) == {}


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [threads_of_each(workers) for workers in (1, 3, 16)] == [8, 2, 1]
