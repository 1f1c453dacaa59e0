"""A public series, and the generated one that takes its place."""

import numpy as np
import pytest

from litlab.data.download import Unavailable
from litlab.errors import UserError
from tests.litlab.data.series.conftest import Etth1, hourly


def test_other_processes_follow_the_first_one_to_the_stand_in(tmp_path, make_trainer):
    data = Etth1(path=str(tmp_path), fallback="generated")
    data.trainer = make_trainer()
    data.trainer.strategy.broadcast = lambda value: True
    data.setup("fit")
    assert data.generated
    assert data.sizes["train"] == 6569


def refuse(*_):
    raise Unavailable("example.org: no answer")


def test_stand_in_for_the_public_series(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("litlab.data.series.source.obtain_file", refuse)
    missing = Etth1(path=str(tmp_path))
    with pytest.raises(UserError, match=r"^etth1 is not in .*: put ETTh1\.csv into .*--data\.fallback generated"):
        missing.prepare_data()
    split = ["2017-07-01", "2017-11-01"]  # the stand-in ends before
    data = Etth1(path=str(tmp_path), fallback="generated", targets=["OT", "HUFL"], split=split)
    data.prepare_data()
    assert "GENERATED" in capsys.readouterr().err
    data.setup()
    assert data.generated
    assert data.target_names == data.state_dict()["targets"] == ["OT", "HUFL"]
    assert data.description.startswith("GENERATED stand-in for etth1: 6,569 train / 905 val / 1,905 test windows")


def test_the_public_series_has_the_published_split(tmp_path, monkeypatch):
    stamps = hourly(14_500, np.datetime64("2016-07-01T00:00:00"))
    rng = np.random.default_rng(0)
    lines = ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"]
    lines += [
        ",".join([time, *row])
        for time, row in zip(stamps, rng.normal(size=(14_500, 7)).round(3).astype(str), strict=True)
    ]
    (tmp_path / "ETTh1.csv").write_text("\n".join(lines))
    asked = []
    monkeypatch.setattr("litlab.data.series.source.obtain_file", lambda *file: asked.append(file))
    data = Etth1(path=str(tmp_path), horizon=720)
    data.prepare_data()
    data.setup()
    assert asked[0][0] == Etth1.public.file
    assert asked[0][1] == tmp_path
    assert data.sizes == {"train": 7585, "val": 2161, "test": 2161}
    assert data.season == 24


def test_etth1_needs_a_folder(tmp_path):
    (tmp_path / "ETTh1.csv").write_text("")
    with pytest.raises(
        UserError, match=r"^data\.path: .*ETTh1\.csv is not a folder; .*--data\.dataset csv --data\.path FILE"
    ):
        Etth1(path=str(tmp_path / "ETTh1.csv")).prepare_data()
