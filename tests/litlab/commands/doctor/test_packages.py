"""Python, packages and extras next to what a distribution declares, which is made up here."""

from importlib import metadata
from pathlib import Path

import pytest

from litlab.commands.doctor.packages import packages
from litlab.util.team import use_package

NUMPY = metadata.version("numpy")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Installs a team's package ``lab`` of a distribution ``lab-experiments`` with the metadata that a test gives."""
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda *lines: install(tmp_path, "lab-experiments", "lab", *lines)
    use_package("auks")


def install(place: Path, name: str, package: str, *lines: str) -> None:
    (place / package).mkdir(exist_ok=True)
    (place / package / "__init__.py").touch()
    folder = place / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    head = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    (folder / "METADATA").write_text("\n".join([*head, *lines, ""]))
    (folder / "top_level.txt").write_text(package)
    use_package(package)


def found() -> dict[str, tuple[str, str, str]]:
    return {line.name: (line.status, line.what, line.remedy) for line in packages()}


def test_what_fits_is_one_line(lab):
    lab("Requires-Python: >=3.11", f"Requires-Dist: numpy=={NUMPY}", "Requires-Dist: nowhere; sys_platform == 'never'")
    lines = found()
    assert list(lines) == ["Python", "packages"]
    assert lines["Python"][0] == "ok"
    assert lines["packages"][:2] == (
        "ok", "1 that lab-experiments 1.0 needs, and 0 that these need: all there, in versions that fit"
    )  # fmt: skip


def test_a_python_and_packages_that_do_not_fit_fail(lab):
    lab("Requires-Python: <3", "Requires-Dist: numpy<1", "Requires-Dist: nowhere[a]>=2")
    lines = found()
    assert lines["Python"][0] == "failed"
    assert lines["Python"][2] == "make a new environment with Python <3, then: pip install 'lab-experiments'"
    assert lines["numpy"] == (
        "failed", f"{NUMPY} is installed, and lab-experiments 1.0 needs numpy<1", "pip install 'numpy<1'"
    )  # fmt: skip
    assert lines["nowhere"] == (
        "failed", "not installed, and lab-experiments 1.0 needs nowhere>=2", "pip install 'nowhere>=2'"
    )  # fmt: skip
    assert "packages" not in lines


def test_what_packages_need_themselves_is_a_warning(lab, tmp_path):
    install(tmp_path, "inner", "inner", "Requires-Dist: numpy<1; extra == 'fast'", "Requires-Dist: nowhere")
    lab("Requires-Dist: inner[fast]")
    lines = found()
    assert lines["numpy"][:2] == ("warning", f"{NUMPY} is installed, and inner needs numpy<1")
    assert lines["nowhere"][0] == "warning"


def test_extras_are_there_or_missing_or_too_old(lab):
    lab(
        "Provides-Extra: serve", "Provides-Extra: there", "Provides-Extra: old", "Provides-Extra: dev",
        "Requires-Dist: nowhere; extra == 'serve'", "Requires-Dist: numpy; extra == 'there'",
        "Requires-Dist: numpy<1; extra == 'old'", "Requires-Dist: lab-experiments[serve,there]; extra == 'dev'",
    )  # fmt: skip
    lines = found()
    assert lines["serve"] == ("note", "the command serve: not installed", "pip install 'lab-experiments[serve]'")
    assert lines["there"] == ("ok", "installed", "")
    assert lines["old"] == (
        "warning", f"numpy {NUMPY} is installed; it needs numpy<1", "pip install 'lab-experiments[old]'"
    )  # fmt: skip
    assert lines["dev"][:2] == ("note", "tests, linting and notebooks: not installed (nowhere)")


def test_the_pyproject_of_a_checkout_counts_more_than_what_was_installed(lab, tmp_path):
    lab("Requires-Dist: numpy")
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'lab-experiments'\nrequires-python = '>=3.11'\ndependencies = ['numpy', 'nowhere>=3']\n"
        "[project.optional-dependencies]\nfast = ['numpy<1']\nall = ['lab-experiments[fast]']\n"
    )
    lines = found()
    assert lines["nowhere"] == (
        "failed",
        "not installed, and pyproject.toml needs nowhere>=3",
        "pip install 'nowhere>=3'",
    )
    assert lines["all"][0] == "warning"
    assert lines["all"][2] == "pip install -e '.[all]'"


def test_a_package_that_is_not_installed_is_a_note(tmp_path, monkeypatch):
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    use_package("loose")
    try:
        lines = found()
    finally:
        use_package("auks")
    assert lines["Python"][0] == "ok"
    assert lines["packages"][0] == "note"
    assert "there is no pyproject.toml" in lines["packages"][1]
