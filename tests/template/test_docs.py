"""The documentation as a site: it builds without a warning, and what is wrong in it fails; and its
commands.
"""

import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from litlab.util.files import write_text
from tests.conftest import CONFIGS, PACKAGE, ROOT

PROJECT = f"python -m {PACKAGE} "
# Pages whose commands have tests of their own
RUN_ELSEWHERE = ("README.md", "docs/data.md", "docs/tutorials/own_data.md")
# What is not run: it installs, needs a server, a cluster or another repository, writes into this
# one, or takes long
NOT_RUN = re.compile(
    r"make |source |\.venv/bin/|pip |uv |touch |docker |curl |git |rm |#|tensorboard |torchrun "
    rf"|head |export |python (?!-m {PACKAGE} )|{PROJECT}(new|rename|doctor|schema)\b"
)
# What a command says that is right, and finds neither run nor data here, or another's best.yaml
FINDS_NOTHING = re.compile(
    r"there is no such run|data\.path: there is no|no run|not been started"
    "|best.yaml: something else is there"
)


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs`` does."""
    printed = subprocess.run(
        ["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    [line] = [line for line in printed.splitlines() if "sphinx-build" in line]
    *options, _, _ = shlex.split(line)[1:]
    command = [sys.executable, "-m", "sphinx", *options, docs, site]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def links(page: Path) -> set[str]:
    """Return what a page links to, without headings."""
    return {link.partition("#")[0] for link in re.findall(r'href="([^"]+)"', page.read_text())}


def test_the_site(tmp_path):
    """A link that leads nowhere is a warning, and fails."""
    done = build(ROOT / "docs", tmp_path)
    assert done.returncode == 0, done.stderr
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs).with_suffix(".html")) for page in docs.rglob("*.md")}
    assert pages - {"index.html"} <= links(tmp_path / "index.html")
    # So that every page is two clicks away
    assert "](docs/index.md)" in (ROOT / "README.md").read_text()

    # The README is a page whose links lead to pages and files.
    assert {"architecture.html", "serve.html"} <= links(tmp_path / "overview.html")
    [config] = [link for link in links(tmp_path / "overview.html") if link.endswith("/linear.yaml")]
    assert (tmp_path / config).read_bytes() == (ROOT / "configs/linear.yaml").read_bytes()

    # Diagrams are drawn.
    page = (tmp_path / "architecture.html").read_text()
    assert re.search(r'class="mermaid[^>]*>\s*graph TD', page)


def read_commands(text: str) -> list[str]:
    """Return the lines of all blocks of commands of a page, each once, without comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return list(dict.fromkeys(re.split(r"\s+#", line)[0].strip() for line in lines if line))


def list_commands() -> list[str]:
    """Return those that are not run elsewhere; those of an example that is gone are left out."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/examples/*/*.md")]
    texts = [page.read_text() for page in pages if str(page.relative_to(ROOT)) not in RUN_ELSEWHERE]
    named = {line: re.search(r"src/examples/\w+", line) for line in read_commands("\n".join(texts))}
    return [line for line, part in named.items() if part is None or (ROOT / part[0]).is_dir()]


@pytest.fixture
def _clone(tmp_path):
    """What the commands expect: configs, among them what bench and sweep write."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    shutil.copy(CONFIGS / "cifar.yaml", tmp_path / "configs/mine.yaml")
    (tmp_path / "src").symlink_to(ROOT / "src")
    for overlay in ("bench/cifar/bench.yaml", "sweeps/cifar/best.yaml"):
        write_text(tmp_path / "lightning_logs" / overlay, "trainer: {max_epochs: 2}\n")


@pytest.mark.usefixtures("_clone")
def test_commands_of_the_pages(run, monkeypatch):
    """Each is right: fits are parsed, others begin, and find neither runs nor data."""
    monkeypatch.setattr("litlab.commands.sweep.sweep.run_children", lambda *_: [0])
    monkeypatch.setattr("litlab.commands.sweep.sweep.run_worker", lambda *_: 0)
    commands = [line for line in list_commands() if not NOT_RUN.match(line)]
    assert len(commands) > 60
    for command in commands:
        assert command.startswith(PROJECT), command
        verb, *words = shlex.split(command)[3:]
        if verb == "bench":  # what it measures are settings of fit
            own = ("--minutes", "--allow", "--compare")
            pairs = pairwise(["", *words])
            words = [word for before, word in pairs if before not in own and word not in own]
        if verb in ("fit", "bench") and "--resume" not in words:
            verb, words = "fit", [*words, "--print_config"]
        done = run(verb, *words)
        assert done.code == 0 or FINDS_NOTHING.search(done.err), f"{command}\n{done.err}"
