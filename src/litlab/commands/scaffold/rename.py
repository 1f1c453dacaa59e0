"""``python -m PACKAGE rename``: give the team's package another name, wherever its files mention
it.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from litlab.commands.scaffold.new import check_name, find_folders
from litlab.errors import UserError
from litlab.runs.git import GitError, run_git
from litlab.util.options import Options
from litlab.util.team import package

DESCRIPTION = """\
Rename the package of the experiments: its folder, the folder of its tests, and its name in files
in git. Earlier runs name its classes by the old package, and can't be read under the new name.
Commit everything first, so that git can show what has changed, and undo it.

  %(prog)s acme
"""
# litlab's. The first two never mention the package; the others test what is shipped, and are left
# out under another name.
UPSTREAM = ("src/litlab/", "tests/litlab/", "tests/template/", "tests/conftest.py")
# Where NAME is the package and not the word. PARTS are the modules in it, and in its tests.
RULES = (
    r"(?<=src/)NAME\b|(?<=tests[/.])NAME\b",
    # Python -m NAME, also at a line's end, or as words
    r"(?:(?<=-m\s)|(?<=-m\", \")|(?<=-m', '))NAME\b",
    r"(?<=\bfrom )NAME(?= import|\.)",
    r"(?<=\bimport )(?<![\w.] import )NAME\b",  # not: from common import NAME
    r"(?<![\w./-])NAME(?=[./](?:PARTS)\b)",  # a class path, or a file
    r"(?<=`)NAME(?=`|/)",
    # A whole string that is no key, such as "module": "NAME", or with extras
    r"(?<=\")NAME(?=\"(?!:)|\[)",
    r"\bNAME(?=::)|(?<=torch\.ops\.)NAME\b",  # its operators, and in C++
    r"(?:(?<=TORCH_LIBRARY\()|(?<=TORCH_LIBRARY_FRAGMENT\()|(?<=TORCH_LIBRARY_IMPL\())NAME\b",
)


def main(arguments: list[str]) -> int:
    options = Options("rename", DESCRIPTION)
    options.add_argument("name", metavar="NAME", help="the new name, as in import NAME")
    new = options.parse_args(arguments).name

    folders = find_folders("rename")
    check_name("rename", new)
    check_free(new)
    check_committed()
    count = replace_mentions(folders, new)
    for folder in folders:
        run_git("mv", str(folder), str(folder.with_name(new)), at=Path.cwd())
    sort_imports()

    old = package()
    print(f"{old} is {new} now, in {count} files. Look at the changes, and at what is left:")
    print(f"  git diff HEAD --stat\n  git grep --word-regexp {old}")
    print(f"Next:\n  git add --all && git commit --message 'Rename {old} to {new}'")
    print(f"  pip uninstall --yes {old} && pip install --no-deps --editable .\n  make lint test")
    return 0


def check_free(name: str) -> None:
    folders = [Path(name), Path("src", name), Path("tests", name)]
    if any(folder.exists() for folder in folders) or importlib.util.find_spec(name) is not None:
        raise UserError(f"rename: {name} exists already; choose another name")


def check_committed() -> None:
    try:
        is_changed = run_git("status", "--porcelain", at=Path.cwd())
    except GitError as error:
        raise UserError(
            f"rename: git could not undo it here ({error}); run git init and commit first"
        ) from error
    if is_changed:
        raise UserError(
            "rename: there are uncommitted changes; commit them first, or run git stash "
            "--include-untracked"
        )


def replace_mentions(folders: tuple[Path, Path], new: str) -> int:
    """Write the new name into all files that mention the package; return how many these are."""
    parts = {path.stem for folder in folders for path in folder.glob("[!.]*")} | {"commands"}
    rule = (
        "|".join(RULES)
        .replace("NAME", package())
        .replace("PARTS", "|".join(sorted(map(re.escape, parts))))
    )
    mention = re.compile(rule)

    count = 0
    for name in run_git("ls-files", "-z", at=Path.cwd()).split("\0")[:-1]:
        path = Path(name)
        if name.startswith(UPSTREAM) or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue  # a picture or the like
        changed = mention.sub(new, text)
        if changed != text:
            path.write_bytes(changed.encode())
            count += 1
    return count


def sort_imports() -> None:
    if importlib.util.find_spec("ruff"):
        for arguments in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
            subprocess.run(
                [sys.executable, "-m", "ruff", *arguments, "--no-cache", "src", "tests"],
                check=False,
            )
