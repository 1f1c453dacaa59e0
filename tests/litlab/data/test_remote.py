"""Data at URLs: a table, a folder of images; by fsspec's memory and by HTTP."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest

from litlab.data import ImageData
from litlab.data.remote import find_local
from tests.litlab.conftest import BRIEF, CONFIGS
from tests.litlab.data.conftest import prepared, refusal

ROWS = "size,colour,label\n" + "".join(f"{i % 7},{'rb'[i % 2]},{i % 2}\n" for i in range(60))


@pytest.fixture
def url(tmp_path):
    """That of a folder."""
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_file_is_copied_once_and_again_when_it_changes(url):
    find = partial(find_local, setting="data.path", cache_dir=Path("cache"))
    file = Path("rows.csv")
    file.write_text(ROWS)
    copy = find(f"{url}/rows.csv")
    assert (copy.name, copy.read_text()) == ("rows.csv", ROWS)
    assert find(f"{url}/rows.csv") == copy
    file.write_text(ROWS + "1,r,1\n")
    assert find(f"{url}/rows.csv").read_text() == ROWS + "1,r,1\n"
    assert "/other.csv can't be read (" in refusal(find, f"{url}/other.csv")


def test_a_run_trains_on_a_table_at_a_url_and_predicts_it(run):
    fsspec.filesystem("memory").pipe_file("/data/rows.csv", ROWS.encode())
    url = "memory://data/rows.csv"
    data = ["--data.dataset=csv", f"--data.path={url}", "--data.target=label"]
    assert f"csv {url}" in run("fit --config", CONFIGS / "table.yaml", *data, *BRIEF).check().out
    run(f"predict --run=last --input={url} --output=out.csv").check()
    assert len(Path("out.csv").read_text().splitlines()) == 61


def test_images_at_a_url_are_those_here(images):
    fsspec.filesystem("memory").put(f"{images}/", "/photos/", recursive=True)
    here, there = (prepared(ImageData(path=path)) for path in (images, "memory://photos"))
    assert there.state_dict() == here.state_dict()
