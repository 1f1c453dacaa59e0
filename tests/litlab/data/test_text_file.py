"""What is given for a file and is none: one line, and no waiting for it."""

import os
import socket
from types import SimpleNamespace

from litlab.data.paths import check_file, user_path

from litlab.data import ImageData, SeriesData, TextData
from litlab.data.series.predictions import read_last_window
from litlab.data.text.predictions import read_input
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import named as named_images
from tests.litlab.data.series.conftest import Etth1
from tests.litlab.data.text.conftest import named as named_texts


def special(folder):
    """Paths that are no files, and what is said of them."""
    os.mkfifo(folder / "pipe.csv")
    (folder / "link.csv").symlink_to("nowhere.csv")
    (folder / "loop.csv").symlink_to("loop.csv")
    (folder / "folder.csv").mkdir()
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(folder / "s.csv"))
    return {
        "pipe.csv": "is a pipe; save what comes out of it to a file and give that",
        "link.csv": "is a link to nowhere.csv, which is not there",
        "loop.csv": "can't be read (Too many levels of symbolic links)",
        "folder.csv": "is a folder; give a file",
        "s.csv": "is a socket; give a file",
        "none.csv": "there is no file",
        f"{'x' * 300}.csv": "can't be used (File name too long)",
        "folder.csv/a.csv": "there is no file",
        os.fsdecode(b"caf\xe9.csv"): "caf\\udce9.csv' contains characters that are not text; rename the file",
        "a\nb.csv": "a\\nb.csv' contains characters that are not text; rename the file",
        "a\0b.csv": "a\\x00b.csv' contains characters that are not text; rename the file",
    }


def test_what_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = tmp_path / "good.csv"
    good.write_text("text,label\n" + "x,1\ny,2\n" * 4)
    metadata = SimpleNamespace(time_column="date", targets=["load"], context_length=1, horizon=1)
    for name, problem in {**special(tmp_path), "/dev/zero": "is a device; give a file"}.items():
        for setting, action in {
            "data.path": lambda name=name: prepared(TextData("csv", name)),
            "data.test_path": lambda name=name: prepared(TextData("csv", str(good), test_path=name)),
            "data.path ": lambda name=name: prepared(SeriesData("csv", name)),
            "data.path  ": lambda name=name: prepared(ImageData("csv", name)),
            "--input": lambda name=name: read_input(name, None, ["text"], "label"),
            "--input ": lambda name=name: read_last_window(user_path(name, "--input"), metadata, "error", "error"),
        }.items():
            message = refusal(action)
            if name != "/dev/zero" or setting != "--input":
                assert message.startswith(f"{setting.strip()}: "), message
                assert problem in message


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "good.csv"
    path.write_text("text,label\n")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    assert refusal(prepared, TextData("csv", str(path))) == f"data.path: {path} can't be read (Permission denied)"
    monkeypatch.setattr("pathlib.Path.stat", refuse)
    assert refusal(check_file, path, "--input") == f"--input: {path} can't be read (Permission denied)"


def test_what_can_not_become_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    special(tmp_path)
    for name in ("pipe.csv", "link.csv", "loop.csv", "pipe.csv/more"):
        for data in (Etth1(path=name), named_texts("news")(path=name), named_images("cifar10")(path=name)):
            message = refusal(data.prepare_data)
            assert message.startswith(f"data.path: {name.removesuffix('/more')} is not a folder; name the one that ")
    for option in ("path", "cache_dir"):
        message = refusal(TextData, "generated", **{option: "~nobody-of-this-name/data"})
        assert message.endswith(": there is no such home directory; write the whole path")
