"""``python -m PACKAGE completion``: the completion script of a shell."""

from importlib.resources import files
from shlex import quote

from litlab.cli.commands import list_commands
from litlab.commands.editor.schema import all_schemas
from litlab.util.options import Options, answer
from litlab.util.team import package, typed

SHELLS = ("bash", "zsh")
DESCRIPTION = """\
Print a script with which a shell completes commands, flags, choices, class names, configs, runs and metrics, of
`{command}` and of `{package}`, a function that the script defines (docs/editor.md). Nothing is computed when
you press TAB: write it again when a class or its arguments have changed.

  %(prog)s bash > ~/.{package}-completion.bash && echo source ~/.{package}-completion.bash >> ~/.bashrc
  %(prog)s zsh > ~/.{package}-completion.zsh && echo source ~/.{package}-completion.zsh >> ~/.zshrc
"""


def main(arguments: list[str]) -> int:
    """Run the command ``completion``.

    Args:
        arguments: What follows the command on the command line.

    Returns:
        The exit code: 0; 2 after one line on what is wrong.
    """
    return answer(_completion, arguments)


def _completion(arguments: list[str]) -> int:
    options = Options("completion", DESCRIPTION.format(command=typed(), package=package()))
    options.add_argument("shell", choices=SHELLS, help="the shell")
    shell = options.parse_args(arguments).shell
    schemas = all_schemas()
    from litlab.commands.editor.words import all_words

    print(script(shell, *all_words(schemas)), end="")
    return 0


def script(shell: str, flags: dict[str, list[str]], values: dict[str, list[str]]) -> str:
    """Return the script of a shell.

    Args:
        shell: ``bash`` or ``zsh``.
        flags: The flags of each command.
        values: The values of flags, by command and flag; ``*`` stands for any command.
    """
    commands = [*list_commands(), "--help"]
    parts = [
        f"# Completion for {shell}, printed by: {typed('completion', shell)}\n",
        _case("commands", {"*": commands}),
        _case("flags", flags),
        _case("values", values),
        *((files("litlab.commands.editor") / f"shell/{name}.sh").read_text() for name in ("common", shell)),
    ]
    return "\n".join(parts).replace("PACKAGE", package())


def _case(name: str, answers: dict[str, list[str]]) -> str:
    """Return a shell function that prints the words for its argument."""
    together: dict[str, list[str]] = {}
    for argument, words in answers.items():
        pattern = f"*{quote(argument[1:])}" if argument.startswith("*") else quote(argument)
        together.setdefault(" ".join(words), []).append(pattern)
    rows = [f"    {' | '.join(patterns)}) printf '%s\\n' {quote(words)} ;;" for words, patterns in together.items()]
    return "\n".join([f"_PACKAGE_{name}() {{", "  case $1 in", *rows, "  esac", "}\n"])
