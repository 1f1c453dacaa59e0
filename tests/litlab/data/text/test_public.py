"""Public sets, with small files in place of the real ones; no network."""

import hashlib
from dataclasses import replace

import pytest

from litlab.data import public
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import PUBLIC_SETS


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    def fail(urls):
        raise public.Unavailable("no network here")

    monkeypatch.setattr(public, "check_reachable", fail)


@pytest.fixture
def news(tmp_path, monkeypatch):
    """Files that are the expected ones."""
    (tmp_path / "news").mkdir()
    known = PUBLIC_SETS["news"]
    files = []
    for file, count in zip(known.files, (40, 8), strict=True):
        content = "".join(f'{i % 4},"Said ""{file.name}"" {i}"\n' for i in range(count)).encode()
        (tmp_path / file.name).write_bytes(content)
        files.append(replace(file, digest=f"md5:{hashlib.md5(content).hexdigest()}"))
    monkeypatch.setitem(PUBLIC_SETS, "news", replace(known, files=tuple(files)))
    return tmp_path


def test_with_the_files_and_then_without(news, make_data):
    for _ in range(2):
        data = prepared(make_data(dataset="news", path=str(news), fallback="generated"))
        assert data.description.startswith("news: 36 train / 4 val / 8 test texts of")
        assert not data.generated
        for file in (news / "news").glob("*.csv"):
            file.unlink()


@pytest.mark.parametrize(("name", "classes"), [("news", 4), ("films", 2)])
def test_without_files_or_network(make_data, tmp_path, capsys, few_generated, name, classes):
    assert refusal(prepared, make_data(dataset=name, path=str(tmp_path))).startswith(
        f"{name}: it is not in {tmp_path}/ and can't be downloaded (no network here); put news/train.csv and "
        f"news/test.csv there, use your own data (--data.dataset csv --data.path FILE)"
    )
    data = prepared(make_data(dataset=name, path=str(tmp_path), fallback="generated"))
    assert (data.generated, data.num_classes) == (True, classes)
    assert data.description.startswith(f"GENERATED stand-in for {name}: 36 train / 4 val / 8 test")
    assert "GENERATED" in capsys.readouterr().err


def test_other_files_of_that_name_are_refused(news, make_data):
    (news / "news" / "train.csv").write_text("something else")
    assert "it is not the public file" in refusal(prepared, make_data(dataset="news", path=str(news)))
