"""What a report is made of: sections of tables, figures, samples and texts, before it is HTML or Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from markupsafe import Markup


@dataclass(frozen=True)
class Paragraph:
    """A paragraph.

    Args:
        text: The text; its line breaks are kept.
        kind: ``plain``, ``note`` (small), or a banner: ``warning`` or ``error``.
    """

    block: ClassVar[str] = "paragraph"
    text: str
    kind: str = "plain"


@dataclass(frozen=True)
class Code:
    """Commands or a file, in a typewriter font.

    Args:
        text: The text.
    """

    block: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    Args:
        header: Names of the columns.
        rows: The cells.
        caption: A line above it.
        best: Row and column, from 0, of the cells in bold.
        numbers: Whether the columns after the first are numbers, which are aligned to the right.
    """

    block: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    best: frozenset[tuple[int, int]] = frozenset()
    numbers: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing.

    Args:
        svg: An ``<svg>`` element.
        caption: A line above it.
        name: What its file is called in a card, without an ending.
        wide: Whether it takes the whole width of the page.
    """

    block: ClassVar[str] = "figure"
    svg: Markup
    caption: str
    name: str
    wide: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture that a callback of the run has left.

    Args:
        content: The content of an image file.
        kind: Its type: ``png`` or ``webp``.
        caption: A line above it.
    """

    block: ClassVar[str] = "picture"
    content: bytes
    kind: str
    caption: str


@dataclass(frozen=True)
class Sample:
    """A sample of the data, as an image or as a text.

    Args:
        caption: Its class or target, and what was predicted.
        image: The content of an image file.
        kind: Its type: ``png`` or ``jpeg``.
        text: The text.
        wrong: Whether the prediction was wrong.
    """

    caption: str
    image: bytes = b""
    kind: str = "png"
    text: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Gallery:
    """Samples side by side, or texts one below the other.

    Args:
        samples: The samples.
        caption: A line above them.
    """

    block: ClassVar[str] = "gallery"
    samples: Sequence[Sample]
    caption: str


@dataclass(frozen=True)
class Details:
    """Blocks that are shown on a click.

    Args:
        title: What is always shown.
        blocks: The rest.
    """

    block: ClassVar[str] = "details"
    title: str
    blocks: Sequence["Block"]


Block = Paragraph | Code | Table | Figure | Picture | Gallery | Details


@dataclass(frozen=True)
class Section:
    """A part of a report with a heading.

    Args:
        name: Its anchor in the page.
        title: The heading.
        blocks: What is in it. A section without blocks is left out.
    """

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass
class Evaluation:
    """What a checkpoint showed when it was evaluated for the report.

    Args:
        metrics: The test metrics.
        task: What the model does, in the words of the Hugging Face Hub: ``image-classification``; "" if not known.
        parameters: Number of parameters, and of those that are trained.
        sections: What the report says of the predictions.
        samples: Some samples of the test split.
        counts: For each split the samples of each class, in the order of `class_names`; none where it is not known.
        sizes: Samples of each split, as far as the DataModule tells.
        class_names: Names of the classes, if there are any.
    """

    metrics: dict[str, float]
    task: str
    parameters: tuple[int, int]
    sections: Sequence[Section]
    samples: Sequence[Block]
    counts: dict[str, list[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    class_names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """A report on one run or several.

    Args:
        title: Which runs these are.
        lead: What they are, in a line.
        badges: Status and the like, each a word and its kind: ``good``, ``bad`` or ``plain``.
        banners: What must be read first.
        tiles: The main figures: a value, its name, and a remark.
        sections: The rest.
    """

    title: str
    lead: str
    badges: Sequence[tuple[str, str]]
    banners: Sequence[Paragraph]
    tiles: Sequence[tuple[str, str, str]]
    sections: Sequence[Section]
