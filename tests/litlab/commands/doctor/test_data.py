"""Where the data of configs is, or would come from: the servers are real, on this machine."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from lightning.pytorch import LightningDataModule

from litlab.commands.doctor.data import data_set, data_sets
from litlab.commands.doctor.line import Line
from litlab.data import PublicFile
from litlab.data.images import ImageData, PublicImages
from litlab.data.series import PublicSeries, SeriesData
from litlab.data.text import PublicTexts, TextData


class Answers(BaseHTTPRequestHandler):
    """Has files whose names begin with load, and no others."""

    def do_HEAD(self) -> None:
        self.send_response(200 if self.path.startswith("/load") else 404)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    """The address of a server."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, args=[0.02], daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def series(address: str, path: Path, **settings) -> SeriesData:
    public = PublicSeries(f"{address}/load.csv", "load.csv", "sha256:0", ("OT",), (1, 2, 3))
    return type("LoadData", (SeriesData,), {"public": public})(path=str(path), **settings)


def texts(address: str, path: Path, **settings) -> TextData:
    files = tuple(PublicFile(f"{address}/{name}.csv", f"{name}.csv", f"sha256:{name}") for name in ("load", "missing"))
    public = PublicTexts("reviews", files, ("bad", "good"), lambda root: ({}, {}))
    return type("ReviewData", (TextData,), {"public": public})(path=str(path), cache_dir=f"{path}/cache", **settings)


def closed() -> str:
    """An address that refuses connections."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_public_data_that_a_server_offers_can_be_downloaded(server, tmp_path):
    line = data_set(series(server, tmp_path), ["mine", "yours"])
    assert (line.status, line.name, line.facts["reachable"]) == ("ok", "load.csv", True)
    assert line.what == f"for mine, yours: not in {tmp_path}/ yet, but can be downloaded"
    assert list(tmp_path.iterdir()) == [], "it is not downloaded"


def test_public_data_that_can_not_be_had_fails_unless_there_is_a_fallback(server, tmp_path):
    failed, warned = (data_set(series(closed(), tmp_path, fallback=own), ["mine"]) for own in (None, "generated"))
    assert (failed.status, warned.status) == ("failed", "warning")
    assert "refused" in failed.what
    assert failed.what.endswith(": fit would stop")
    assert warned.what.endswith(": fit would use GENERATED data")
    assert warned.remedy.startswith(f"put load.csv into {tmp_path}/, or use --data.dataset csv --data.path FILE")


def test_public_data_is_there_as_files_unpacked_or_prepared(tmp_path):
    address = closed()
    (tmp_path / "load.csv").touch()
    line = data_set(series(address, tmp_path), ["mine"])
    assert (line.status, line.what, line.facts["reachable"]) == ("ok", f"for mine: in {tmp_path}/", None)

    module = texts(address, tmp_path)
    assert data_set(module, ["mine"]).status == "failed", "one of two files is missing"
    module.cache_folder().mkdir(parents=True)
    line = data_set(module, ["mine"])
    assert (line.status, line.facts["prepared"]) == ("ok", True)
    assert line.what == f"for mine: prepared in {tmp_path}/cache/"

    pictures = PublicImages("pictures", "CIFAR10", "unpacked", ("a.tar.gz",), ("x", "y"), (3, 8, 8))
    images = type("Pictures", (ImageData,), {"public": pictures})(path=str(tmp_path), cache_dir=str(tmp_path / "other"))
    (tmp_path / "unpacked").mkdir()
    assert not data_set(images, ["mine"]).facts["there"], "an empty folder is no data"
    (tmp_path / "unpacked/batch_1").touch()
    assert data_set(images, ["mine"]).what == f"for mine: in {tmp_path}/"


def test_public_data_of_a_team_that_names_no_address_is_a_note(tmp_path):
    class Own:
        name, file_names, columns, ends = "own", ("own.csv",), ("OT",), (1, 2, 3)

    line = data_set(type("OwnData", (SeriesData,), {"public": Own()})(path=str(tmp_path)), ["mine"])
    assert (line.status, line.name) == ("note", "own")


def found(folder: Path, **configs: str) -> dict[str, Line]:
    for name, data in configs.items():
        (folder / f"{name}.yaml").write_text(data)
    return {line.name: line for line in data_sets(folder)}


def test_data_of_ones_own_is_there_or_not(tmp_path):
    (tmp_path / "here.csv").touch()
    config = "data: {{class_path: litlab.data.SeriesData, init_args: {{dataset: csv, path: {}}}}}"
    lines = found(
        tmp_path,
        first=config.format(tmp_path / "here.csv"),
        second=f"base: first.yaml\ndata: {{init_args: {{path: {tmp_path / 'gone.csv'}}}}}",
        third="base: second.yaml\ndata: {init_args: {horizon: 3}}",
        overlay="trainer: {max_epochs: 3}",
    )
    assert list(lines) == [str(tmp_path / "here.csv"), str(tmp_path / "gone.csv")]
    here, gone = lines.values()
    assert (here.status, here.facts["configs"]) == ("ok", ["first"])
    assert (gone.status, gone.facts["configs"]) == ("failed", ["second", "third"])


class One(LightningDataModule):
    """What it reads, nobody can ask it."""


class Two(LightningDataModule):
    """The same."""


class Far(SeriesData):
    """Data that no server has."""

    public = PublicSeries("http://127.0.0.1:9/far.csv", "far.csv", "sha256:0", ("OT",), (1, 2, 3))


class Farther(SeriesData):
    """The same."""

    public = PublicSeries("http://127.0.0.1:9/f.csv", "farther.csv", "sha256:0", ("OT",), (1, 2, 3))


CONFIG = "data: {{class_path: tests.litlab.commands.doctor.test_data.{}, init_args: {{}}}}"


def test_what_data_modules_of_ones_own_read_a_run_shows(tmp_path):
    line = found(tmp_path, one=CONFIG.format("One"), two=CONFIG.format("Two"))["other data"]
    assert (line.status, line.facts) == ("note", {"configs": ["one", "two"]})
    assert "fit --config FILE --check tries it" in line.remedy


def test_a_proxy_is_named_once_where_servers_can_not_be_reached(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    found(tmp_path, far=CONFIG.format("Far"), farther=CONFIG.format("Farther"))
    lines = list(data_sets(tmp_path))
    assert [(line.name, "https_proxy" in line.remedy) for line in lines] == [
        ("far.csv", False), ("farther.csv", False), ("downloads", True)
    ]  # fmt: skip


def test_a_config_with_a_mistake_is_a_line_of_its_own(tmp_path):
    lines = found(
        tmp_path,
        fine="data: {class_path: litlab.data.SeriesData, init_args: {dataset: generated}}",
        null="data: {class_path: litlab.data.SeriesData, init_args: {dataset: csv}}",
        text="data: [",
        word="data: {class_path: litlab.data.SeriesData, init_args: {widht: 3}}",
    )
    assert {name: line.status for name, line in lines.items()} == {
        "null": "failed", "text": "failed", "word": "failed", "generated": "ok"
    }  # fmt: skip
    assert lines["null"].what == "for null: data.path: it is not set; name your own data for data.dataset csv"
    assert "not valid YAML" in lines["text"].what
    assert lines["word"].what == f"for word: {tmp_path}/word.yaml: data: a class or setting is not valid"
    assert f"fit --config {tmp_path}/word.yaml --check" in lines["word"].remedy


def test_a_folder_without_configs_is_a_note(tmp_path):
    assert [line.status for line in data_sets(tmp_path)] == ["note"]
