"""Pictures and tables that the callbacks of a run have left in its folder."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from litlab.commands.report.blocks import Block, Details, Paragraph, Picture, Table
from litlab.runs.folder import RunFolder

AS_IT_IS = 150_000  # bytes of a picture that is not made smaller
ROOM = 700_000  # bytes for all pictures together
WIDEST = 1400  # pixels
ROWS, COLUMNS, LETTERS = 12, 10, 200  # of a table, and of a cell
OTHERS = ("predictions.csv", "metrics.csv")  # what commands and loggers write
DRAWN_AGAIN = ("confusion_matrix.png", "classes.csv")  # by litlab, in a report that has an evaluation


def callback_files(run: RunFolder, everything: bool) -> list[Block]:
    """Return the pictures and tables, each folded.

    Args:
        run: The run.
        everything: Whether there is no evaluation, which draws some of them itself: all are shown, pictures unfolded.
    """
    files = sorted(path for path in run.path.iterdir() if path.is_file() and path.name not in OTHERS)
    files = [path for path in files if everything or path.name not in DRAWN_AGAIN]
    pictures = list(_pictures([path for path in files if path.suffix == ".png"]))
    if not everything:
        pictures = [Details(block.caption, [block]) if isinstance(block, Picture) else block for block in pictures]
    return [*pictures, *_tables([path for path in files if path.suffix == ".csv"])]


def _pictures(files: list[Path]) -> Iterator[Block]:
    from PIL import Image

    room = ROOM
    for path in files:
        try:
            content, kind = _smaller(path)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises
            yield Paragraph(f"{path.name} can't be read: {error}", "note")
            continue
        if len(content) > room:
            yield Paragraph(f"{path.name}, in the run's folder, is left out: the page would become too large.", "note")
            continue
        room -= len(content)
        yield Picture(content, kind, path.name)


def _smaller(path: Path) -> tuple[bytes, str]:
    """Return the content of a picture and its type; a large one is made smaller."""
    from PIL import Image

    content = path.read_bytes()
    with Image.open(io.BytesIO(content)) as picture:
        picture.load()
        if len(content) <= AS_IT_IS and picture.format == "PNG":
            return content, "png"
        stream = io.BytesIO()
        small = picture.convert("RGB")
        small.thumbnail((WIDEST, 4 * WIDEST))
        small.save(stream, "WEBP", quality=80, method=4)
    return stream.getvalue(), "webp"


def _tables(files: list[Path]) -> Iterator[Block]:
    for path in files:
        try:
            with path.open(newline="", encoding="utf-8", errors="replace") as stream:
                rows = [[_cut(cell) for cell in row[:COLUMNS]] for row in islice(csv.reader(stream), ROWS + 1)]
        except (OSError, csv.Error) as error:
            yield Paragraph(f"{path.name} can't be read: {error}", "note")
            continue
        if len(rows) > 1:
            header, *cells = rows
            whole = [row + [""] * (len(header) - len(row)) for row in cells]
            caption = f"Its first {len(cells)} rows" if len(cells) == ROWS else ""
            yield Details(path.name, [Table(header, [row[: len(header)] for row in whole], caption)])


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
