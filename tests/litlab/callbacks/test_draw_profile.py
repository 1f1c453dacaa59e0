"""The pictures of docs/profiling.md come from benchmarks/draw_profile.py."""

import json

import pytest
from PIL import Image

from benchmarks.draw_profile import draw_shares, draw_timeline, innermost, kind_of, lanes, step_events


def test_each_moment_is_that_of_the_innermost():
    nested = [(0, 10, "a"), (2, 6, "b"), (3, 4, "a"), (12, 13, "b")]
    assert innermost(nested) == {"a": [(0, 2), (3, 1), (6, 4)], "b": [(2, 1), (4, 2), (12, 1)]}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::convolution_backward", "convolution"),
        ("aten::addmm", "matrix product"),
        ("aten::add_", "arithmetic by element"),
        ("aten::native_batch_norm", "normalisation"),
        ("Memcpy HtoD (Pinned -> Device)", "copies, zeros"),
        ("aten::linalg_qr", "other operations"),
    ],
)
def test_kind_of_an_operation(name, kind):
    assert kind_of(name) == kind


def event(name, start, milliseconds, cat="cpu_op", tid=1):
    return {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": start * 1e3, "dur": milliseconds * 1e3}


STEP = [
    event("[_TrainingEpochLoop].train_dataloader_next", 100, 3, "user_annotation"),
    event("[Strategy]SingleDeviceStrategy.training_step", 104, 4, "user_annotation"),
    event("aten::mm", 105, 2),
    event("gemm", 106, 3, "kernel", tid=7),
]
NEXT = [
    event("[_TrainingEpochLoop].train_dataloader_next", 110, 3, "user_annotation"),
    event("aten::mm", 111, 1),
]


def test_lanes_of_one_step():
    assert lanes(step_events([*STEP, *NEXT], 1)) == {
        "part of the step": {"waiting for data": [(0, 3)], "forward": [(4, 4)]},
        "thread 1": {"matrix product": [(5, 2)]},
        "device stream 1": {"matrix product": [(6, 3)]},
    }
    with pytest.raises(SystemExit, match="--step 3: the trace has 2 steps"):
        step_events([*STEP, *NEXT], 3)


def test_pictures_are_small(tmp_path):
    trace, profile = tmp_path / "trace.json", tmp_path / "profile.json"
    trace.write_text(json.dumps({"traceEvents": [*STEP, *NEXT]}))
    profile.write_text(json.dumps({"parts": {"waiting for data": 3.0, "forward": 5.0}}))
    draw_timeline(trace, 1, tmp_path / "timeline.png")
    draw_shares({"before": profile, "after": profile}, tmp_path / "shares.png")
    for picture in tmp_path.glob("*.png"):
        assert picture.stat().st_size < 150_000
        with Image.open(picture) as image:
            assert image.width == 1000
