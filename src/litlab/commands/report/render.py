"""The templates of a report: one HTML file that needs no other file, no script and no network; and a model card."""

import base64
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from litlab.commands.report.blocks import Report

FOLDER = Path(__file__).parent / "page"
JOINTS = re.compile(r"(?<=\w)[/_=:](?=\w)|(?<=[^\W\d])[.-](?=[^\W\d])")  # where a long name may break; no number


def style(*names: str) -> str:
    """Return style sheets of the page."""
    return "".join((FOLDER / name).read_text(encoding="utf-8") for name in names)


def html(report: Report, command: str, made: str) -> str:
    """Return the page. Whatever the report says is escaped: names and texts are shown, never run.

    Args:
        report: The report.
        command: What has made it.
        made: When.
    """
    sheet = Markup(style("page.css", "figure.css"))
    return rendered("page.html", report=report, style=sheet, command=command, made=made)


def rendered(name: str, **values: Any) -> str:
    """Return a template with values in it: escaped in HTML, as they are in Markdown."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"data_uri": _data_uri, "breakable": _breakable}
    return environment.get_template(name).render(values).lstrip() + "\n"


def _breakable(text: str) -> Markup:
    """Let long names break after their dots, slashes and the like."""
    return Markup(JOINTS.sub(r"\g<0><wbr>", str(escape(text))))


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
