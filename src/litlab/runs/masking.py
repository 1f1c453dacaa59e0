"""Keep secrets out of what a run writes: by the names of settings, and by what keys look like."""

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

MASK = "***"
# The name of a setting whose value is a secret: `hf_token`, `api_key`, `db.password`; not
# `pad_token` or `max_tokens`.
NAME = (
    r"(?!(?:[\w.-]*[_.-])?(?:pad|mask|unk|eos|bos|sep|cls|start|end|stop|special|class|image|blank)_token\b)"
    r"(?:[\w.-]*[_.-])?(?:token|password|passwd|passphrase|secrets?|credentials?|(?:api|access|secret|private|auth)_?key)"
)
# `password: x`, `token=x`, `"api_key": "x"`; what is clearly not a secret (a number, null, true, a
# mask) stays.
SETTING = re.compile(
    rf"(?<![\w.-])((?:--?)?[\"']?{NAME}[\"']?\s*[:=][ \t]*)"
    r"(?!(?:null|none|true|false|~|[\d.+-]+|\*\*\*)[\"']?\s*(?:[,})\]#]|$))"
    r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"'{}\[\]()]+)",
    re.IGNORECASE | re.MULTILINE,
)
# Keys of well-known services and passwords in addresses, wherever they stand.
KEY = re.compile(
    r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|AIza)[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"
    r"|(?<=://)[^/\s:@\"']*:[^/\s@\"']+(?=@)|(?<=\bBearer )[\w.~+/=-]{8,}"
    r"|(?<=\bBasic )[\w.~+/=-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END|\Z)"
)


def mask(value: Any, name: str = "") -> Any:
    """Replace secrets in plain data: values under a name of a secret, and those inside of texts."""
    if isinstance(value, dict):
        return {key: mask(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, name) for item in value]
    if isinstance(value, str):
        return MASK if re.fullmatch(NAME, name, re.IGNORECASE) else mask_text(value)
    return value


def mask_text(text: str) -> str:
    """Replace secrets in settings as they stand in a command line or a message, and those of
    environment variables.
    """
    for name, value in os.environ.items():
        if len(value) > 7 and value in text and re.fullmatch(NAME, name, re.IGNORECASE):
            text = text.replace(value, MASK)
    return SETTING.sub(rf"\1{MASK}", KEY.sub(MASK, text))


def mask_command(words: Sequence[str]) -> list[str]:
    """Replace secrets in a command line, whether given as ``--token=x`` or ``--token x``."""
    pairs = pairwise(["", *words])
    return [mask(word, "" if word.startswith("--") else before) for before, word in pairs]
