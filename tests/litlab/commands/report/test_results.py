"""`python -m auks results`: tables in pages, from result files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = {
    "command": "fit --config configs/mine.yaml",
    "seeds": [0, 1],
    "date": "2026-01-31 10:00 UTC",
    "commit": "1234567890abcdef1234567890abcdef12345678 + changes",
    "versions": {"torch": "2.15.0+cpu"},
    "cpu": "A CPU, 2 threads",
    "gpu": None,
    "models": {
        "small": {"acc": {"median": 0.8, "min": 0.75, "max": 0.825}, "by seed": [0.8, 0.75], "epochs": 3},
        "large": {"command": "python benchmarks/large.py", "gpu": "A GPU", "acc": {"mean": 0.9, "min": 0.9, "max": 0.9},
                  "by seed": [0.9, 0.95], "epochs": None},
    },
}  # fmt: skip
TABLE = """\
from: mine.json > models
columns:
  - model
  - accuracy: "{acc | .3f}"
  - by seed: "{by seed | .2f}, mean {by seed | mean .1%}"
  - epochs: "{epochs}"
rows:
  - {from: small, cells: ["`small`"]}
  - {from: large, cells: ["`large`", null, "at most {by seed | max .2f}"]}
"""
PAGE = """\
# Mine

```markdown
<!-- results: shown in a block of code -->
```

Before.

<!-- results: mine -->
| old |
<!-- end of results -->

After.
"""
WRITTEN = """\
| model | accuracy | by seed | epochs | made by |
| --- | --- | --- | --- | --- |
| `small` | .800 (.750 to .825) | .80 .75, mean 77.5 % | 3 | 1 |
| `large` | .900 | at most .95 | | 2 |

<details><summary>Made by</summary>

1. `python -m auks fit --config configs/mine.yaml`: seeds 0, 1; 2026-01-31; commit 1234567 with changes; torch 2.15.0; \
A CPU, 2 threads
2. `python benchmarks/large.py`: seeds 0, 1; 2026-01-31; commit 1234567 with changes; torch 2.15.0; A GPU
</details>
"""


@pytest.fixture
def project(run, tmp_path) -> Path:
    """A project with a page, a table and a result file."""
    write(tmp_path / "docs/mine.md", PAGE)
    write(tmp_path / "benchmarks/results/tables/mine.yaml", TABLE)
    write(tmp_path / "benchmarks/results/mine.json", json.dumps(FILE))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def replace(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_table_is_written_between_its_markers_and_nothing_else_changes(project, run):
    done = run("results")
    assert (done.code, done.out) == (0, "docs/mine.md:9: mine is rewritten\n"), done.err
    assert (project / "docs/mine.md").read_text() == PAGE.replace("| old |\n", WRITTEN)
    assert run("results").out == "All tables are as the result files say.\n"
    assert (project / "docs/mine.md").read_text() == PAGE.replace("| old |\n", WRITTEN)


def test_a_check_finds_what_drifted_and_writes_nothing(project, run):
    write(project / "README.md", PAGE)
    done = run("results", "--check")
    assert done.code == 1
    assert done.out.splitlines() == [
        "README.md:9: mine differs from the result files",
        "docs/mine.md:9: mine differs from the result files",
        "`python -m auks results` rewrites them.",
    ]
    assert (project / "docs/mine.md").read_text() == PAGE
    run("results")
    assert run("results", "--check").code == 0

    replace(project / "README.md", ".800", ".801")  # by hand
    assert run("results", "--check").out.startswith("README.md:9: mine differs")
    run("results")
    replace(project / "benchmarks/results/mine.json", "0.75,", "0.76,")  # measured again
    assert run("results", "--check").code == 1


def test_lines_of_windows_stay(project, run):
    (project / "docs/mine.md").write_bytes(PAGE.replace("\n", "\r\n").encode())
    run("results")
    assert (project / "docs/mine.md").read_bytes() == PAGE.replace("| old |\n", WRITTEN).replace("\n", "\r\n").encode()
    assert run("results", "--check").code == 0


def test_one_command_for_all_rows_is_one_line(project, run):
    replace(project / "benchmarks/results/tables/mine.yaml", '  - {from: large, cells: ["`large`", null, "at most', "#")
    run("results")
    text = (project / "docs/mine.md").read_text()
    assert "| model | accuracy | by seed | epochs |\n" in text
    assert "\n\nMade by `python -m auks fit --config configs/mine.yaml`: seeds 0, 1; 2026-01-31; commit" in text
    assert "details" not in text


def test_a_row_for_each_entry_that_has_none_of_its_own(project, run):
    entries = {name: {"command": None, "recorded": "by hand, once", "name": f"a|{name}"} for name in "abc"}
    write(project / "benchmarks/results/x/one.json", json.dumps(entries))
    write(project / "benchmarks/results/x/two.json", json.dumps({"command": None, "recorded": "by hand", "name": "{"}))
    rows = "[{from: x/one.json > b, cells: [first]}, {from: x/one.json > *}, {from: x/t*.json, cells: ['{{{name}}}']}]"
    write(project / "benchmarks/results/tables/mine.yaml", f"columns: [name: '{{name}}']\nrows: {rows}\n")
    replace(project / "benchmarks/results/tables/mine.yaml", "[first]", "['first {name}']")
    assert run("results").code == 0
    lines = (project / "docs/mine.md").read_text().splitlines()
    assert lines[9:17] == [
        "| name |", "| --- |", r"| first a\|b |", r"| a\|a |", r"| a\|c |", "| {{} |", "",
        "Made by a command that was not kept: recorded by hand.",
    ]  # fmt: skip


TABLES, RESULT, DOC = "benchmarks/results/tables/mine.yaml", "benchmarks/results/mine.json", "docs/mine.md"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (DOC, "results: mine", "results: mien", "docs/mine.md:9: there is no table 'mien'; did you mean 'mine'?"),
        (DOC, "results: mine", "results: x", "no table 'x'; describe it in benchmarks/results/tables/x.yaml"),
        (DOC, "<!-- end of results -->", "", "docs/mine.md:9: the table 'mine' has no <!-- end of results -->"),
        (DOC, "# Mine", "<!-- end of results -->", "docs/mine.md:1: a table ends here, but"),
        (DOC, "| old |", "<!-- results: mine -->", "docs/mine.md:9: the table 'mine' has no"),
        (TABLES, "mine.json", "mien.json", "mine.yaml:8: benchmarks/results/mien.json: there is no such result file"),
        (TABLES, "from: large", "from: larg", "mine.yaml:9: benchmarks/results/mine.json: models has no 'larg'; did"),
        (TABLES, "{acc |", "{accuracy |", "models > small has no 'accuracy'; there are acc, by seed, epochs"),
        (TABLES, "{epochs}", "{by seed > 2}", "models > small > by seed has no '2', it is a list of 2"),
        (TABLES, "{epochs}", "{epochs > x}", "models > small > epochs has no 'x', it is 3"),
        (TABLES, "{epochs}", "{epochs", "mine.yaml:8: a brace in '{epochs' has no partner"),
        (TABLES, "{epochs}", "{}", "it is no figure but several; name one: acc, by seed, epochs"),
        (TABLES, ".1%", ".1q", "{by seed | mean .1q}: Unknown format code"),
        (TABLES, "mean .1%", "men .1%", "there is no 'men'; there are mean, median, min, max"),
        (TABLES, "{epochs}", "{epochs | mean .1f}", "it is no list of numbers to take the mean of"),
        (TABLES, "rows:", "row:", "mine.yaml:7: there is no 'row'; did you mean 'rows'?"),
        (TABLES, "{from: small, cells", "{from: small, cell", "mine.yaml:8: there is no 'cell'; did you mean 'cells'?"),
        (TABLES, '["`small`"]', "small", "mine.yaml:8: cells: it needs a list"),
        (TABLES, '["`small`"]', "[1, 2, 3, 4, 5]", "mine.yaml:8: cells: there are 5 for 4 columns"),
        (TABLES, '["`small`"]', "[{mse}]", "mine.yaml:8: cells: each is a text; quote it"),
        (TABLES, "  - model\n", "  - [model]\n", "mine.yaml:3: columns: each is a title"),
        (TABLES, "from: mine.json > models\n", "", "from: 'small' names no result file; begin with one"),
        (TABLES, "from: mine", "from: [", "mine.yaml:"),
        (TABLES, '"{acc | .3f}"', '"{acc | .3f}', "mine.yaml:"),
        (RESULT, '"command": "fit --config configs/mine.yaml", ', "", 'mine.json does not say which command made it'),
        (RESULT, '"fit --config configs/mine.yaml"', '["fit"]', 'mine.json: command: it can\'t be ["fit"]'),
        (RESULT, '"gpu"', "gpu", "mine.json:1: not valid JSON"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_nothing_is_written(project, run, file, old, new, said):
    write(project / "README.md", PAGE)  # a page before the one with the mistake
    replace(project / file, old, new)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    done = run("results")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert said in done.err
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_a_table_without_results_says_so(project, run):
    write(project / TABLES, "columns: [a: '{a}']\nrows:\n  - from: x/*.json\n")
    run("results")
    assert "<!-- results: mine -->\nNo results yet.\n<!-- end" in (project / DOC).read_text()


def test_a_row_without_a_figure_has_no_command(project, run):
    write(project / TABLES, "columns: [a, b]\nrows:\n  - cells: [x, 0.5]\n")
    assert "mine.yaml:3: the row has no figure, {PATH}, so nothing says which command made it" in run("results").err


def test_it_starts_without_torch(project):
    lines = (
        "import sys; from litlab.commands.report import results; from litlab.util.team import use_package",
        "use_package('auks'); assert results.main(['--check']) == 1",
        "assert not {'torch', 'numpy'} & set(sys.modules)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=project, check=True)
