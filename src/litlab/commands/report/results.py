"""``python -m PACKAGE results``: tables of results in the documentation, from result files.

A page holds blocks, ``<!-- results: NAME -->`` to ``<!-- end of results -->``, on lines of their own. What is between
is written by the command; the prose around it is not touched.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from litlab.commands.report.chosen import chosen_runs
from litlab.commands.report.results_files import FOLDER, ResultFiles
from litlab.commands.report.results_record import EXPERIMENTS, record
from litlab.commands.report.results_table import TABLES, table
from litlab.errors import UserError
from litlab.runs.find import RUN_HELP
from litlab.runs.folder import RunFolder, write_json, write_text
from litlab.util.options import Options, answer
from litlab.util.team import typed
from litlab.util.text import nearest

BEGIN, END = re.compile(r"<!-- results: *(.*?) *-->\s*"), re.compile(r"<!-- end of results -->\s*")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
DESCRIPTION = f"""\
Rewrite the tables of results in README.md and docs/ from the files in {FOLDER}/. A page has them
between <!-- results: NAME --> and <!-- end of results -->, and {TABLES}/NAME.yaml
describes them. --add writes the results of runs to {EXPERIMENTS}/ first.

  %(prog)s                                  write all tables
  %(prog)s --check                          exit with 1 if one is not what the files say
  %(prog)s --add mine --as mine             with the results of the newest run of mine
  %(prog)s --add mine/version_3 mine/version_4 --as mine        of two runs that differ by their seed
  %(prog)s --add mine/seeds_0 --as mine     of `fit --seeds`
"""


class Block(NamedTuple):
    """A table in a page: its name, and the numbers of the lines with the two markers, from 0."""

    name: str
    begin: int
    end: int


def main(arguments: list[str]) -> int:
    """Run the command ``results`` and return its exit code: 0, 1 after a failed check, or 2 after an error's line."""
    return answer(_results, arguments)


def _results(arguments: list[str]) -> int:
    options = Options("results", DESCRIPTION)
    options.add_argument("--check", action="store_true", help="write nothing; name the tables that differ")
    options.add_argument(
        "--add", nargs="+", metavar="RUN", help=f"add results of runs: {RUN_HELP}, or a group of seeds"
    )
    options.add_argument("--as", dest="name", metavar="NAME", help="with --add: the name of the file")
    options.add_argument("--note", metavar="TEXT", help="with --add: what else to say about how they were made")
    chosen = options.parse_args(arguments)
    if chosen.add and chosen.check:
        options.error("--check writes nothing, so it can't go with --add; leave one out")
    if bool(chosen.add) != bool(chosen.name) or (chosen.note and not chosen.add):
        options.error("--add, --as and --note belong together: --add RUN --as NAME")

    added = {}
    if chosen.add:
        if not re.fullmatch(r"[\w.-]*\w", chosen.name):
            options.error(f"--as: '{chosen.name}' can't be the name of a file; use letters, digits and _ - .")
        added[f"{EXPERIMENTS.name}/{chosen.name}.json"] = record(_runs(chosen.add), chosen.note)
    files = ResultFiles(added=added)
    pages, changed = rewritten(lambda name: table(name, files))
    if chosen.check:
        for line in changed:
            print(f"{line} differs from the result files")
        if changed:
            print(f"`{typed('results')}` rewrites {'it' if len(changed) == 1 else 'them'}.")
        return 1 if changed else 0
    for name, content in added.items():
        write_json(FOLDER / name, content)
        print(f"{FOLDER / name}: added")
        if content["generated"]:
            print(f"warning: {name}: on GENERATED data; it says nothing about the real data", file=sys.stderr)
    for page, text in pages.items():
        write_text(page, text)
    print("\n".join(f"{line} is rewritten" for line in changed) or "All tables are as the result files say.")
    return 0


def _runs(names: list[str]) -> list[RunFolder]:
    """Return the runs that are named, those of a group of seeds one by one."""
    return [run for name in names for run in chosen_runs([name]).runs]


def rewritten(render: Callable[[str], list[str]]) -> tuple[dict[Path, str], list[str]]:
    """Return the pages that change with their new text, and the blocks that do: ``docs/results.md:12: NAME``.

    Args:
        render: Returns the lines of a table by name.

    Raises:
        UserError: If a marker has no partner, or there is no such table.
    """
    known = sorted(file.stem for file in TABLES.glob("*.yaml"))
    pages: dict[Path, str] = {}
    changed: list[str] = []
    for page in [*Path().glob("README.md"), *sorted(Path("docs").rglob("*.md"))]:
        text = page.read_bytes().decode("utf-8", errors="surrogateescape")
        lines = text.split("\n")
        end = "\r" if "\r\n" in text else ""
        new: list[str] = []
        copied = 0  # lines of the old text
        for block in blocks(page, lines):
            if block.name not in known:
                hint = nearest(block.name, known, f"; describe it in {TABLES / block.name}.yaml")
                raise UserError(f"{page}:{block.begin + 1}: there is no table '{block.name}'{hint}")
            table_lines = [line + end for line in render(block.name)]
            if lines[block.begin + 1 : block.end] != table_lines:
                changed.append(f"{page}:{block.begin + 1}: {block.name}")
            new += [*lines[copied : block.begin + 1], *table_lines]
            copied = block.end
        if (new_text := "\n".join([*new, *lines[copied:]])) != text:
            pages[page] = new_text
    return pages, changed


def blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    """Yield the blocks of a page; those in a block of code are only shown there.

    Args:
        page: Its file, for messages.
        lines: Its lines.

    Raises:
        UserError: If a marker has no partner.
    """
    begun: tuple[str, int] | None = None
    fence = ""
    for number, line in enumerate(lines):
        if found := FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        if fence:
            continue
        begin, end = BEGIN.fullmatch(line), END.fullmatch(line)
        if begun and begin:
            break
        if end and not begun:
            raise UserError(f"{page}:{number + 1}: a table ends here, but <!-- results: NAME --> is missing before it")
        if begin:
            begun = begin[1], number
        elif end and begun:
            yield Block(*begun, number)
            begun = None
    if begun:
        raise UserError(f"{page}:{begun[1] + 1}: the table '{begun[0]}' has no <!-- end of results --> after it")
