"""Keep secrets out of what is recorded of a run."""

import re
from collections.abc import Sequence
from typing import Any

MASK = "***"

# The name of a setting whose value is a secret: `hf_token`, `api_key`, `db.password`; not `max_tokens`.
_NAME = (
    r"(?:[\w.-]*[_.-])?(?:token|password|passwd|passphrase|secrets?|credentials?|api_?key|access_?key|secret_?key"
    r"|private_?key|auth_?key)"
)
_IS_SECRET = re.compile(_NAME, re.IGNORECASE)
_BEFORE = rf"(?<![\w.-])(?P<name>(?:--?)?[\"']?{_NAME}[\"']?\]?\s*"
# `password: x`, `token=x`, `"api_key": "x"`; what is clearly not a secret (a number, null, true, a mask) may stay.
_PLAIN = r"(?!(?:null|none|true|false|~|[\d.+-]+(?:e[\d+-]+)?|\*\*\*)[\"']?\s*(?:[,})\]#]|$))"
_SETTING = re.compile(
    rf"{_BEFORE}[:=][ \t]*)(?:\"{_PLAIN}[^\"\n]+\"|'{_PLAIN}[^'\n]+'|{_PLAIN}[^\s,;&\"'{{}}\[\]()]+)",
    re.IGNORECASE | re.M,
)
# In Python the value of a secret is a string in quotes: `token = next(tokens)` or `token: str` holds none.
_LITERAL = re.compile(
    rf"{_BEFORE}(?::\s*[\w| .]+)?[:=]\s*)[rbfu]*(?:\"{_PLAIN}[^\"\n]+\"|'{_PLAIN}[^'\n]+')", re.IGNORECASE | re.M
)
_FORMATS = [
    (re.compile(r"://[^/\s:@\"']*:[^/\s@\"']+@"), f"://{MASK}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    # Keys of well-known services, wherever they stand.
    (re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|AIza)[\w-]{16,}"), MASK),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"), MASK),
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL), rf"\1 {MASK} \2"),
]


def mask_text(text: str, python: bool = False) -> str:
    """Replace secrets in a text by ``***``.

    Args:
        text: Settings as they stand in YAML, JSON, a command line or a message.
        python: Whether the text is Python code, where only strings in quotes are values.
    """
    for pattern, mask in _FORMATS:
        text = pattern.sub(mask, text)
    return (_LITERAL if python else _SETTING).sub(_masked, text)


def mask_command(arguments: Sequence[str]) -> list[str]:
    """Replace secrets in a command line, whether given as ``--token=x`` or ``--token x``."""
    masked: list[str] = []
    for number, argument in enumerate(arguments):
        flag = arguments[number - 1].lstrip("-") if number and arguments[number - 1].startswith("--") else ""
        is_value = "=" not in flag and _IS_SECRET.fullmatch(flag) and not argument.startswith("--")
        masked.append(MASK if is_value and not _is_plain(argument) else mask_text(argument))
    return masked


def mask(value: Any, name: str = "") -> Any:
    """Replace secrets in plain data: values under a name of a secret, and those inside of texts."""
    if isinstance(value, dict):
        return {key: mask(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask(item, name) for item in value]
    if isinstance(value, str):
        return MASK if _IS_SECRET.fullmatch(name) and not _is_plain(value) else mask_text(value)
    return value


def mask_diff(diff: str) -> str:
    """Replace secrets in the output of ``git diff``; in Python files only strings in quotes."""
    files = re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)
    return "".join(mask_text(part, python=part.partition("\n")[0].endswith(".py")) for part in files)


def _masked(found: re.Match[str]) -> str:
    quote = found[0][-1] if found[0][-1] in "\"'" else ""  # what was in quotes stays in quotes
    return f"{found['name']}{quote}{MASK}{quote}"


def _is_plain(text: str) -> bool:
    return re.fullmatch(r"|null|none|true|false|~|[\d.+-]+(e[\d+-]+)?", text.strip(), re.IGNORECASE) is not None
