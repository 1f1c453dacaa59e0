"""Checks that crash or hang are lines like the others; how lines look."""

import os
import time
from dataclasses import replace

from litlab.commands.doctor.doctor import summary, table
from litlab.commands.doctor.line import FAILED, MACHINE, NOTE, OK, PYTHON, WARNING, Line
from litlab.commands.doctor.run_checks import Check, run_checks

HERE = "tests.litlab.commands.doctor.trouble"
LONG = "a sentence that is too long for one row of any terminal, as it goes on and on with /a/path-that/stays-whole.py"


def check(function: str, **options) -> Check:
    return Check(MACHINE, function, HERE, function, **options)


def found(*checks: Check) -> list[Line]:
    return run_checks(checks, lambda waiting: None)


def test_lines_come_in_the_order_of_the_checks_and_without_the_noise_of_libraries():
    told = []
    lines = run_checks([check("fine", alone=True), check("broken_torch")], told.append)
    assert [line.name for line in lines] == ["fine", "torch"]
    assert lines[0] == Line(MACHINE, "fine", OK, "fine", facts={"cores": 2})
    assert told[0] == ["fine", "broken_torch"]
    assert ["fine"] in told, "the one that measures runs when the others have ended"
    assert told[-1] == []


def test_a_check_that_raises_is_a_line_beside_what_it_had_found():
    before, failed = found(check("raises"))
    assert (before.status, failed.status, failed.name) == (OK, FAILED, "raises")
    assert failed.what == "the check raised ValueError: first line"
    assert failed.facts["tried"] == f"{HERE}.raises"
    assert "second line" in failed.facts["stderr"]


def test_a_check_that_lacks_a_package_is_a_note_as_the_line_on_packages_fails():
    (line,) = found(check("lacks_a_package"))
    assert (line.status, line.what) == (NOTE, "not checked, as there is no module there_is_no_such_package")


def test_a_check_that_hangs_ends_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, failed = found(check("hangs", seconds=3.0))
    assert (before.status, failed.status, failed.what) == (OK, FAILED, "no answer in 3 s")
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not is_running(child):
            return
        time.sleep(0.05)
    raise AssertionError("its child still runs")


def is_running(number: int) -> bool:
    """Whether a process is there, and no zombie that nobody has waited for."""
    try:
        os.kill(number, 0)
        with open(f"/proc/{number}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_check_whose_process_dies_is_a_line_that_says_how():
    died, left = found(check("dies"), check("leaves"))
    assert died.what == "the check's process was killed by SIGSEGV"
    assert left.what == "the check's process ended with exit code 3: a reason"


def test_without_torch_one_line_fails_and_the_others_say_that_they_were_not_checked():
    checks = check("needs_torch", needs_torch=True), check("lacks_a_package", needs_torch=True), check("raises")
    lines = found(check("broken_torch"), *checks)
    assert [(line.name, line.status) for line in lines] == [
        ("torch", FAILED), ("known without", NOTE), ("needs_torch", NOTE), ("lacks_a_package", NOTE), ("before", OK),
        ("raises", FAILED),
    ]  # fmt: skip
    assert "torch" in lines[2].what


def test_the_table_folds_between_words_and_names_each_heading_once():
    lines = [
        Line(PYTHON, "Python", OK, "3.11"),
        Line(MACHINE, "memory", WARNING, LONG, LONG),
        Line(MACHINE, "a name longer than its column", FAILED, "broken", "mend it"),
    ]
    for width in (80, 120):
        rows = table(lines, width).splitlines()
        assert max(map(len, rows)) <= width
        assert [row for row in rows if row and not row.startswith(" ")] == ["Python", "Machine"]
        assert any("/a/path-that/stays-whole.py" in row for row in rows)
        assert sum("-> " in row for row in rows) == 2
        assert "FAILED" in table(lines, width)
    assert "\x1b" not in table(lines, 80)
    assert "\x1b[33mwarning" in table(lines, 80, coloured=True)


def test_the_summary_counts_what_failed_and_the_warnings():
    line = Line(PYTHON, "a", OK, "")
    assert summary([line, replace(line, status=NOTE)]) == "nothing failed, no warnings"
    assert summary([replace(line, status=FAILED), replace(line, status=WARNING)]) == "1 failed, 1 warning"
