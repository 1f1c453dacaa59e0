"""``--output``: what is refused before any work, what may be replaced, and how files are written."""

import csv
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from litlab.cli.output import check_output
from litlab.data.series.predictions import write_forecast
from litlab.data.table import class_columns, forecast_columns, is_predictions, write_classes, write_table
from litlab.errors import UserError

PREDICTIONS = "file,prediction,probability,cat\nx.png,cat,1.0,1.0\n"


def given(folder: Path, name: str, content: str = PREDICTIONS) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def read_only(path: Path) -> None:
    path.chmod(path.stat().st_mode & ~0o222)


# (what is there before, what --output is given, what the line says after its name)
REFUSED = {
    "nothing": (lambda _: None, "", "--output: '' is not a file name; choose another file"),
    "blank": (lambda _: None, " ", "--output: ' ' is not a file name; choose another file"),
    "here": (lambda _: None, ".", "--output: '.' is not a file name; choose another file"),
    "above": (lambda _: None, "..", "--output: '..' is not a file name; choose another file"),
    "root": (lambda _: None, "/", "--output: '/' is not a file name; choose another file"),
    "folder": (lambda here: (here / "out").mkdir(), "out", "--output: 'out' is not a file name; choose another file"),
    "slash": (lambda _: None, "new/", "--output: 'new/' is not a file name; choose another file"),
    "link to a folder": (
        lambda here: (here / "out").symlink_to("."),
        "out",
        "--output: 'out' is not a file name; choose another file",
    ),
    "link": (lambda here: (here / "out").symlink_to(given(here, "x.csv")), "out", "out is a link; choose another"),
    "broken link": (lambda here: (here / "out").symlink_to("gone"), "out", "out is a link; choose another file"),
    "pipe": (lambda here: os.mkfifo(here / "out"), "out", "out is a pipe or a device, not a file; choose another"),
    "device": (lambda _: None, "/dev/null", "/dev/null is a pipe or a device, not a file; choose another file"),
    "standard output": (lambda _: None, "/dev/stdout", "/dev/stdout is a link; choose another file"),
    "read-only": (lambda here: read_only(given(here, "out.csv")), "out.csv", "out.csv is read-only; choose another"),
    "input": (lambda here: given(here, "in.csv"), "./in.csv", "./in.csv is the file that input names; choose"),
    "link to the input": (
        lambda here: os.link(given(here, "in.csv"), here / "out.csv"),
        "out.csv",
        "out.csv is the file that input names; choose another file",
    ),
    "data": (lambda here: given(here, "data.csv"), "data.csv", "data.csv is the file that data.path names; choose"),
    "config in a list": (lambda here: given(here, "a.yaml"), "a.yaml", "a.yaml is the file that config names; choose"),
    "text": (lambda here: given(here, "a.txt", "x"), "a.txt", "a.txt exists already and does not hold predictions"),
    "table": (lambda here: given(here, "a.csv", "file,label\n"), "a.csv", "a.csv exists already and does not hold pre"),
    "binary": (
        lambda here: (here / "a.ckpt").write_bytes(bytes(range(256)) * 1000),
        "a.ckpt",
        "a.ckpt exists already and does not hold predictions; choose another file",
    ),
    "checkpoints": (
        lambda here: given(here, "run/checkpoints/last.ckpt"),
        "run/checkpoints/new.csv",
        "run/checkpoints/new.csv is kept for the files of ",
    ),
    "status": (
        lambda here: (here / "run/checkpoints").mkdir(parents=True),
        "run/../run/status.json",
        "run/../run/status.json is kept for the files of ",
    ),
    "below a file": (lambda here: given(here, "a"), "a/out.csv", "a/out.csv can't be written (Not a directory)"),
    "below a broken link": (
        lambda here: (here / "a").symlink_to("gone"),
        "a/out.csv",
        "--output: a is not a folder; move it away, or choose another place",
    ),
    "read-only folder": (
        lambda here: [(here / "a").mkdir(), read_only(here / "a")],
        "a/out.csv",
        "--output: a is read-only; change its permissions, or choose another place",
    ),
    "below a read-only folder": (
        lambda here: [(here / "a").mkdir(), read_only(here / "a")],
        "a/b/c/out.csv",
        "/a is read-only; change its permissions, or choose another place",
    ),
    "long": (lambda _: None, "x" * 300, "--output: a name of 300 characters is too long; use at most 200"),
    "long in a new folder": (lambda _: None, f"a/{'x' * 300}", "a name of 300 characters is too long; use at most"),
    "long folder": (lambda _: None, f"a/{'x' * 300}/b", "a name of 300 characters is too long; use at most 200"),
    "kernel": (lambda _: None, "/proc/out.csv", "--output: /proc is read-only; change its permissions, or choose"),
    "no character": (lambda _: None, "a\0b", "--output: 'a\\x00b' holds a null character; delete it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_written_to(tmp_path, monkeypatch, case):
    before, name, says = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    before(tmp_path)
    there = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    config = {"input": "in.csv", "data": {"path": str(tmp_path / "data.csv")}, "config": ["b.yaml", "a.yaml"]}
    with pytest.raises(UserError) as error:
        check_output(name, config)
    assert str(error.value).startswith("--output: ")
    assert says in str(error.value)
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == there


@pytest.mark.parametrize("name", ["out.csv", "a/b/out.csv", "gone/../out.csv", "old.csv", "link/new.csv", "~/home.csv"])
def test_what_is_written_to(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    given(tmp_path, "old.csv")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = check_output(name, {"output": name})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old.csv", "real"]
    write_table(path, ["file"], [["x"]])
    assert Path(os.path.expanduser(name)).read_text() == "file\nx\n"


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its(tmp_path):
    mask = os.umask(0o027)
    try:
        write_table(tmp_path / "out.csv", ["file"], [["x"]])
        assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o640
        (tmp_path / "out.csv").chmod(0o600)
        write_table(tmp_path / "out.csv", ["file"], [["y"]])
        assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


# ---- columns

ODD = ["File", "file", "prediction", "probability", "row", "text", "class_file", "class_row", "a,b", 'a"b', "a\nb", ""]
ONE = torch.full((1, len(ODD)), 1 / len(ODD))
STATE = {"mean": [0.0] * 5, "scale": [1.0] * 5, "utc": False, "step": {"seconds": 3600}, "time_column": "x_upper"}
TARGETS = ["load", "load_lower", "load__lower", "x", "prediction"]


def write(path: Path, kind: str, outputs: torch.Tensor | None = None) -> None:
    if kind == "images":
        files = [Path("x.png")]
        write_classes(path, {"file": files}, files, ODD, ONE if outputs is None else outputs)
    elif kind == "texts":
        columns = {"row": [2], "text": ["a text"]}
        write_classes(path, columns, ["row 2"], ODD, ONE if outputs is None else outputs)
    else:
        times = torch.arange(1).numpy().astype("datetime64[s]")
        outputs = torch.arange(15.0).reshape(1, 5, 3) if outputs is None else outputs
        write_forecast(path, SimpleNamespace(**STATE, targets=TARGETS), times, outputs)


@pytest.mark.parametrize("kind", ["images", "texts", "series"])
def test_columns_are_unlike_each_other(tmp_path, kind):
    write(tmp_path / "out.csv", kind)
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, row = csv.reader(stream)
    assert len(set(header)) == len(header) == len(row)
    if kind == "series":
        assert header[:4] == ["x_upper", "load", "load___lower", "load___upper"]
    else:
        assert header[-len(ODD) :] == [f"class_{name}" for name in ODD]
    assert is_predictions(tmp_path / "out.csv")


def test_columns_are_plain_where_they_can_be():
    assert class_columns(["file", "prediction"], ["class_file", "cat"]) == ["file", "prediction", "class_file", "cat"]
    assert forecast_columns("time", ["a", "b"]) == ["time", "a", "a_lower", "a_upper", "b", "b_lower", "b_upper"]


# ---- what the model puts out


@pytest.mark.parametrize(
    ("kind", "outputs", "first"),
    [
        ("images", ONE * torch.nan, "x.png"),
        ("texts", ONE * torch.inf, "row 2"),
        ("series", torch.full((1, 5, 3), torch.nan), "1970-01-01 00:00:00"),
        ("series", torch.arange(15.0).reshape(1, 5, 3).where(torch.arange(3) < 2, torch.nan), "1970-01-01 00:00:00"),
    ],
)
def test_what_is_no_number_is_not_written(tmp_path, kind, outputs, first):
    with pytest.raises(UserError, match=f"^predict: the model's output for {first} is NaN or infinite, so no file"):
        write(tmp_path / "out.csv", kind, outputs)
    assert not list(tmp_path.iterdir())


def test_forecasts_without_bounds_have_the_same_columns(tmp_path):
    outputs = torch.arange(15.0).reshape(1, 5, 3).where(torch.arange(3) < 1, torch.nan)
    write(tmp_path / "out.csv", "series", outputs)
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "1970-01-01 00:00:00,0,,,3,,,6,,,9,,,12,,"
    assert is_predictions(tmp_path / "out.csv")
