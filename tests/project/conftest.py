"""Parts of one's own, as the documentation shows them."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture
def own_part(tmp_path, monkeypatch) -> Callable[[str, str], Path]:
    """Puts a file of ``src/project`` that a page shows where it says, and returns a config of the YAML that follows."""

    def install(page: str, file: str) -> Path:
        blocks = rf"`src/project/{file}`.*?```python\n(.*?)```\n\n```yaml\n(.*?)```"
        found = re.search(blocks, (ROOT / "docs" / page).read_text(), re.DOTALL)
        assert found is not None, f"{page} shows no {file}"
        path, overlay = tmp_path / "own" / file, tmp_path / f"own/{Path(file).stem}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found[1])
        overlay.write_text(found[2])
        package = importlib.import_module(f"project.{path.parent.name}")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(path.parent)])
        return overlay

    return install
