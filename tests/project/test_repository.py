"""The files beside the code fit it: workflow, forms, hooks, image, citation, guide for contributors."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from litlab.cli.command import COMMANDS
from tests.conftest import ROOT
from tests.processes import Python

BIN = Path(sys.executable).parent
VERBS = {verb for group in COMMANDS.values() for verb in group}


def of_project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


def check_target(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_workflow_makes_what_there_is_with_every_python_that_is_allowed():
    job = read(".github/workflows/tests.yml")["jobs"]["make"]
    matrix = job["strategy"]["matrix"]
    allowed = SpecifierSet(of_project()["requires-python"])
    assert matrix["python"] == [f"3.{minor}" for minor in range(40) if allowed.contains(f"3.{minor}.0")]
    assert {entry["python"] for entry in matrix["include"]} <= set(matrix["python"])
    targets = {*matrix["target"], *(entry["target"] for entry in matrix["include"])}
    assert {"lint", "test"} <= targets
    for target in targets:
        check_target(target)


def test_the_workflow_may_only_read_and_names_actions_by_commit():
    workflow = read(".github/workflows/tests.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in workflow["jobs"]["make"]
    assert "secrets." not in (ROOT / ".github/workflows/tests.yml").read_text()
    used = [step["uses"] for step in workflow["jobs"]["make"]["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name)] == []


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_issue_forms_are_complete_and_ask_for_commands_that_exist(form):
    content = read(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert content.keys() >= {"name", "description", "body"}
    questions = [part for part in content["body"] if part["type"] != "markdown"]
    ids = [question["id"] for question in questions]
    assert len(ids) == len(set(ids)) > 1
    assert {question["type"] for question in questions} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(question["attributes"]["label"] for question in questions)
    assert any(question.get("validations", {}).get("required") for question in questions)
    asked = set(re.findall(r"-m (\w+) (\w+)", str(content)))
    assert all((ROOT / f"src/{package}/__main__.py").is_file() and verb in VERBS for package, verb in asked)
    assert form != "bug" or "doctor" in {verb for _, verb in asked}


def hook(name: str) -> dict:
    [found] = [
        hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"] if hook["id"] == name
    ]
    return found


def run_hook(name: str, *files: Path) -> int:
    words = shlex.split(hook(name)["entry"])
    assert words[0].startswith(".venv/bin/")
    return subprocess.run([BIN / Path(words[0]).name, *words[1:], *files], cwd=ROOT, capture_output=True).returncode


def test_hooks_need_nothing_from_elsewhere_and_find_what_they_are_for(tmp_path):
    assert {repo["repo"] for repo in read(".pre-commit-config.yaml")["repos"]} == {"local"}
    file = tmp_path / "wrong.py"
    file.write_text('"""A mistake."""\n\nprint( unknown )\n')
    assert run_hook("ruff-check", file) == 1
    assert run_hook("ruff-format", file) == 0
    assert "print(unknown)" in file.read_text()
    assert run_hook("results") == 0
    assert re.search(hook("results")["files"], "docs/results.md")


def test_the_hook_for_notebooks_tells_one_with_outputs():
    pattern = hook("notebooks")["entry"]
    shown = {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
    assert re.search(pattern, json.dumps({"cells": [{"cell_type": "code", "outputs": [shown]}]}, indent=1))
    tracked = subprocess.run(["git", "ls-files", "*.ipynb"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert [name for name in tracked if re.search(pattern, (ROOT / name).read_text())] == []


def test_the_image_is_made_of_what_is_there_and_runs_the_package(tmp_path):
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for name in kept:
        assert (ROOT / name).exists(), name
    for copied in re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", dockerfile, re.MULTILINE):
        assert copied == "." or set(copied.split()) <= set(kept)
    extras = {name for listed in re.findall(r"--editable '\.\[(.*?)]'", dockerfile) for name in listed.split(",")}
    assert {"dev"} < extras <= of_project()["optional-dependencies"].keys()

    for name in kept:  # what the last line of the Dockerfile copies is enough for its command
        path = ROOT / name
        shutil.copytree(path, tmp_path / name) if path.is_dir() else shutil.copy(path, tmp_path)
    [entrypoint] = re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)
    python, *words = json.loads(entrypoint)
    assert python == "python"
    fit = [*words, "fit", "--config", "configs/linear.yaml", "--print_config"]
    process = Python(*fit, cwd=tmp_path, environment={"PYTHONPATH": tmp_path / "src"})
    out, err = process.communicate()
    assert process.wait() == 0, err
    assert yaml.safe_load(out)["experiment"] == "linear"


def test_the_development_container_opens_a_stage_of_the_image():
    text = (ROOT / ".devcontainer/devcontainer.json").read_text()
    container = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    dockerfile = ROOT / ".devcontainer" / container["build"]["dockerfile"]
    assert f" AS {container['build']['target']}\n" in dockerfile.read_text()
    assert f"WORKDIR {container['workspaceFolder']}\n" in dockerfile.read_text()


def test_the_citation_is_that_of_this_version():
    citation, ours = read("CITATION.cff"), of_project()
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert (citation["version"], citation["license"]) == (ours["version"], ours["license"])
    assert citation["abstract"] == ours["description"]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_what_contributors_are_told_to_run_and_read_is_there(page):
    text = (ROOT / page).read_text()
    made = [target for line in re.findall(r"(?:^|`)make ([a-z -]+)", text, re.MULTILINE) for target in line.split()]
    assert made
    for target in made:
        check_target(target)
    assert set(re.findall(r"-m project (\w+)", text)) <= VERBS
    paths = re.findall(r"(?:src|tests|configs|benchmarks|docs)/[\w./-]*\w", text)
    assert [path for path in paths if "mine" not in path and not (ROOT / path).exists()] == []
