"""Pages of HTML that commands write. What they show is escaped: names and texts are shown, never
run.
"""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?( ± \S+)?")  # of a metric, with its spread
# autoescape: names of runs and texts of files may be anybody's. The two others drop the lines of
# Jinja's own tags, so that the HTML can be read.
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def add_breaks(text: str) -> Markup:
    """Return a long name so that a narrow column breaks it after a dot or slash."""
    return Markup(re.sub(r"(?<=\w)[./](?=\w)", r"\g<0><wbr>", str(escape(text))))


def list_numeric(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns, after the first one, that have nothing but numbers, or a dash."""
    # The first column has the names; the others are aligned to the right
    columns = list(enumerate(zip(*rows, strict=True)))[1:]
    return [
        number
        for number, cells in columns
        if all(cell in ("", "-") or _NUMBER.fullmatch(cell) for cell in cells)
    ]


_ENVIRONMENT.filters["add_breaks"] = add_breaks
_ENVIRONMENT.globals["list_numeric"] = list_numeric
# show.table(...) returns HTML, see there
show: Any = _ENVIRONMENT.get_template("blocks.html").module
Section = tuple[str, Sequence[Markup]]  # heading and blocks


def render_page(
    title: str,
    sections: Sequence[Section],
    command: str,
    *,
    lead: str = "",
    banners: Sequence[Markup] = (),
    script: str | None = None,
) -> str:
    """Return a page.

    Args:
        title: Its title.
        sections: What is on it; one without blocks is left out.
        command: What makes the page.
        lead: A sentence below the title.
        banners: What has to be seen first.
        script: Name of a file of JavaScript beside the page; None: no script may run on it.
    """
    return _ENVIRONMENT.get_template("page.html").render(
        title=title,
        lead=lead,
        banners=banners,
        sections=[
            # An id for links, such as made-from
            (re.sub(r"\W+", "-", name.lower()), name, blocks)
            for name, blocks in sections
            if blocks
        ],
        command=command,
        script=script,
    )


def encode(kind: str, image: bytes) -> str:
    """Return an image file, ``png`` or ``svg+xml``, as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
