"""Keep secrets out of what is recorded of a run: its settings, its command line, messages."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

MASK = "***"
SECRETS = r"token|password|passwd|passphrase|secrets?|credentials?|(?:api|access|secret|private|auth)_?key"
OF_A_VOCABULARY = r"(?:pad|mask|unk|eos|bos|sep|cls|start|end|stop|special|class|image|blank)_token"
BEFORE = r"(?:[\w.-]*[_.-])?"
# `hf_token`, `api_key`, `db.password`; not `pad_token` or `max_tokens`.
NAME = re.compile(rf"(?!{BEFORE}{OF_A_VOCABULARY}\b){BEFORE}(?:{SECRETS})", re.IGNORECASE)
# `password: x`, `token=x`, `"api_key": "x"`.
SETTING = re.compile(
    rf"(?<![\w.-])((?:--)?[\"']?{NAME.pattern}[\"']?\s*[:=]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"'{{}}\[\]()]+)",
    re.IGNORECASE,
)
# Keys of well-known services, wherever they stand.
KEY = re.compile(
    r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|AIza)[\w-]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"
)
CREDENTIALS = re.compile(r"://[^/\s:@\"']*:[^/\s@\"']+@|\b(?:Bearer|Basic)\s+[\w.~+/=-]{8,}")


def mask(value: Any, name: str = "") -> Any:
    """Replace secrets in plain data: values under a name of a secret, and those inside of texts."""
    if isinstance(value, dict):
        return {key: mask(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, name) for item in value]
    if isinstance(value, str):
        return MASK if NAME.fullmatch(name) else mask_text(value)
    return value


def mask_text(text: str) -> str:
    """Replace secrets in settings as they stand in a command line or a message."""
    text = CREDENTIALS.sub(lambda found: "://***@" if found[0].startswith(":") else MASK, text)
    return SETTING.sub(rf"\1{MASK}", KEY.sub(MASK, text))


def mask_command(words: Sequence[str]) -> list[str]:
    """Replace secrets in a command line, whether given as ``--token=x`` or ``--token x``."""
    return [
        MASK if flag.startswith("--") and NAME.fullmatch(flag[2:]) and not word.startswith("--") else mask_text(word)
        for flag, word in pairwise(["", *words])
    ]
