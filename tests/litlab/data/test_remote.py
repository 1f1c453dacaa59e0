"""Data at URLs: a table, images in a tar file, a folder; by fsspec's memory and by HTTP."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest

from litlab.data import ImageData
from litlab.data.images.shards import write_shards
from litlab.data.remote import find_local
from tests.litlab.conftest import BRIEF, CONFIGS
from tests.litlab.data.conftest import prepared, refusal

ROWS = "size,colour,label\n" + "".join(f"{i % 7},{'rb'[i % 2]},{i % 2}\n" for i in range(60))


@pytest.fixture(params=["memory", "http"])
def remote(request, tmp_path):
    """A place to put files, and its URL."""
    if request.param == "memory":
        yield fsspec.filesystem("memory"), "memory://team"
    else:
        (tmp_path / "served/team").mkdir(parents=True)
        handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "served")
        handler.log_message = lambda *_: None
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            system = fsspec.filesystem("dir", path=str(tmp_path / "served"), target_protocol="file")
            yield system, f"http://127.0.0.1:{server.server_port}/team"
            server.shutdown()


def test_a_file_is_copied_once_and_again_when_it_changes(remote, tmp_path):
    system, url = remote
    find = partial(find_local, setting="data.path", cache_dir=tmp_path / "cache")
    system.pipe_file("team/rows.csv", ROWS.encode())
    copy = find(f"{url}/rows.csv")
    assert (copy.name, copy.read_text()) == ("rows.csv", ROWS)
    assert find(f"{url}/rows.csv") == copy
    system.pipe_file("team/rows.csv", ROWS.encode() + b"1,r,1\n")
    assert find(f"{url}/rows.csv").read_text() == ROWS + "1,r,1\n"
    assert "/other.csv can't be read (" in refusal(find, f"{url}/other.csv")


def test_a_run_trains_on_a_table_at_a_url_and_predicts_it(run):
    fsspec.filesystem("memory").pipe_file("/data/rows.csv", ROWS.encode())
    url = "memory://data/rows.csv"
    data = ["--data.dataset=csv", f"--data.path={url}", "--data.target=label"]
    assert f"csv {url}" in run("fit --config", CONFIGS / "table.yaml", *data, *BRIEF).check().out
    run(f"predict --run=last --input={url} --output=out.csv").check()
    assert len(Path("out.csv").read_text().splitlines()) == 61


@pytest.mark.parametrize("kind", ["folder", "shards"])
def test_images_at_a_url_are_those_here(kind, images, tmp_path):
    here = prepared(ImageData("folder", str(images)))
    source = images
    if kind != "folder":
        source = tmp_path / "shards"
        source.mkdir()
        write_shards(here, source, 100_000)
    system = fsspec.filesystem("memory")
    system.put(f"{source}/", f"/{kind}/", recursive=True)
    there = prepared(ImageData(path=f"memory://{kind}", cache_dir=str(tmp_path)))
    assert there.sizes == here.sizes
    assert there.metadata.class_names == here.metadata.class_names
