"""What a page is made of: the macros of ``page/blocks.html``. They escape: names and texts are shown, never run."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "page"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
show: Any = ENVIRONMENT.get_template("blocks.html").module  # show.table(...) returns HTML


def encode(kind: str, image: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
