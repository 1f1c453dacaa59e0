"""The page for people: one HTML file with its style and its scripts, and the policy that allows nothing else."""

import base64
import hashlib
from importlib.resources import files

_SCRIPTS = ("draw.js", "page.js")


def _text(name: str) -> str:
    return (files("litlab.commands.serve") / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_STYLE = _text("page.css")
_SCRIPT = "\n".join(map(_text, _SCRIPTS))
PAGE = (
    _text("page.html")
    .replace("<!-- style -->", f"<style>{_STYLE}</style>")
    .replace("<!-- script -->", f"<script>{_SCRIPT}</script>")
)
POLICY = "; ".join(
    (
        "default-src 'none'", f"style-src {_hash(_STYLE)}", f"script-src {_hash(_SCRIPT)}", "img-src blob:",
        "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    )
)  # fmt: skip
