"""Drawings as inline SVG, which takes the colours of the page it is in."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from markupsafe import Markup

Point = tuple[float, float]
COLOURS = 8  # classes c0 to c7 of page/figure.css
LETTER = 6.4  # width of a letter of the labels, about
MOST_POINTS = 400  # of a line: more can't be seen


class Plot:
    """A drawing with two axes, in units of about a pixel.

    Args:
        x: Lowest and highest value of the horizontal axis.
        y: Those of the vertical axis.
        x_label: What is on the horizontal axis.
        legend: Name and colour (``c0``) of what is drawn.
        log: Whether the vertical axis is logarithmic.
        whole: Whether the horizontal axis counts something.
        size: Width and height, without the legend.
    """

    def __init__(
        self,
        x: Point,
        y: Point,
        x_label: str = "",
        legend: Sequence[tuple[str, str]] = (),
        log: bool = False,
        whole: bool = False,
        size: tuple[int, int] = (360, 215),
    ) -> None:
        self.log = log
        self.x, self.y = _widened(x, 0.0), (math.log10(y[0]), math.log10(y[1])) if log else y
        self.y = _widened(self.y, 0.05)
        self.parts: list[Markup] = []
        rows = _legend_rows(legend, size[0])
        self.width, self.height = size[0], size[1] + 18 * len(rows)
        self.left, self.right, self.top, self.bottom = 50, size[0] - 12, 10 + 18 * len(rows), self.height - 34
        for number, row in enumerate(rows):
            place = float(self.left)
            for name, colour in row:
                self._add('<path class="line {}" d="M{} {}h18"/>', colour, _n(place), 9 + 18 * number)
                self._add('<text x="{}" y="{}">{}</text>', _n(place + 23), 13 + 18 * number, name)
                place += 40 + LETTER * len(name)
        self._axes(x_label, whole)

    def line(self, points: Iterable[Point], colour: str, style: str = "line") -> None:
        """Draw a line, and dots on it where it has few points. It is interrupted at values that are not finite."""
        points = _thinned([(x, y) for x, y in points])
        path, pen = [], "M"
        for x, y in points:
            finite = math.isfinite(y) and not (self.log and y <= 0)
            if finite:
                path.append(f"{pen}{_n(self.across(x))} {_n(self.up(y))}")
            pen = "L" if finite else "M"
        self._add('<path class="{} {}" d="{}"/>', style, colour, "".join(path))
        if len(points) <= 15 and style == "line":
            self.dots([point for point in points if math.isfinite(point[1])], colour, 2.4)

    def dots(self, points: Iterable[Point], colour: str, radius: float = 2.0) -> None:
        """Draw dots."""
        for x, y in points:
            self._add(
                '<circle class="dot {}" cx="{}" cy="{}" r="{}"/>', colour, _n(self.across(x)), _n(self.up(y)), radius
            )

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> None:
        """Fill what is between two lines."""
        there = [f"{_n(self.across(x))} {_n(self.up(y))}" for x, y in zip(xs, high, strict=True)]
        back = [f"{_n(self.across(x))} {_n(self.up(y))}" for x, y in zip(xs, low, strict=True)]
        self._add('<path class="area {}" d="M{}Z"/>', colour, "L".join(there + back[::-1]))

    def bar(self, x: Point, y: float, colour: str) -> None:
        """Draw a bar from the bottom of the drawing."""
        left, right, top = self.across(x[0]), self.across(x[1]), self.up(y)
        width, height = max(right - left - 1, 0.5), max(self.bottom - top, 0)
        shape = '<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"/>'
        self._add(shape, colour, _n(left + 0.5), _n(top), _n(width), _n(height))

    def across(self, x: float) -> float:
        """Return where a value of the horizontal axis is."""
        return self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)

    def up(self, y: float) -> float:
        """Return where a value of the vertical axis is."""
        value = math.log10(y) if self.log else y
        return self.bottom - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top)

    def svg(self, label: str) -> Markup:
        """Return the ``<svg>`` element.

        Args:
            label: Description for screen readers.
        """
        return wrapped(self.parts, self.width, self.height, label)

    def _axes(self, x_label: str, whole: bool) -> None:
        for value in self._heights():
            y = _n(self.up(value))
            self._add('<path class="grid" d="M{} {}H{}"/>', self.left, y, self.right)
            self._add('<text class="end" x="{}" y="{}">{}</text>', self.left - 6, _n(float(y) + 4), f"{value:.4g}")
        for value in ticks(*self.x, 5):
            if whole and value != round(value):
                continue
            x = _n(self.across(value))
            self._add('<path class="grid" d="M{} {}v4"/>', x, self.bottom)
            self._add('<text class="middle" x="{}" y="{}">{}</text>', x, self.bottom + 16, f"{value:g}")
        self._add('<text class="end" x="{}" y="{}">{}</text>', self.right, self.height - 3, x_label)

    def _heights(self) -> list[float]:
        """Return the ticks of the vertical axis."""
        if not self.log:
            return ticks(*self.y, 5)
        low, high = (10**power for power in self.y)
        powers = range(math.floor(self.y[0]), math.ceil(self.y[1]) + 1)
        found = [digit * 10.0**power for power in powers for digit in (1, 2, 5) if low <= digit * 10.0**power <= high]
        return found if len(found) <= 7 else [value for value in found if f"{value:e}".startswith("1.0")]

    def _add(self, element: str, *values: object) -> None:
        self.parts.append(Markup(element).format(*values))


def wrapped(parts: Iterable[Markup], width: float, height: float, label: str) -> Markup:
    """Return the ``<svg>`` element around some others.

    Args:
        parts: The elements in it.
        width: Its width in their units.
        height: Its height.
        label: Description for screen readers.
    """
    start = Markup(
        '<svg role="img" aria-label="{}" width="{w}" height="{h}" viewBox="0 0 {w} {h}" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    return start.format(label, w=_n(width), h=_n(height)) + Markup("").join(parts) + Markup("</svg>")


def text(x: float, y: float, content: str, style: str = "", turned: bool = False) -> Markup:
    """Return a ``<text>`` element.

    Args:
        x: Where it stands.
        y: Its base line.
        content: The text.
        style: Its classes.
        turned: Whether it runs upwards.
    """
    turn = Markup(' transform="rotate(-90 {} {})"').format(_n(x), _n(y)) if turned else ""
    return Markup('<text class="{}" x="{}" y="{}"{}>{}</text>').format(style, _n(x), _n(y), turn, content)


def colour(number: int) -> str:
    """Return the class of a colour; after the last one it begins again."""
    return f"c{number % COLOURS}"


def shortened(name: str, most: int) -> str:
    """Return a name that is at most so many letters long."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values between two others, about as many as wanted."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next((factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= most), 10)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def standalone(svg: Markup, style: str) -> str:
    """Return a drawing as a file of its own.

    Args:
        svg: The ``<svg>`` element.
        style: Its style sheet.
    """
    head, end, rest = str(svg).partition(">")
    return f"{head}{end}<style>{escape(style, quote=False)}</style>{rest}\n"


def _widened(ends: Point, share: float) -> Point:
    """Return the ends of an axis, with some room, and never the same."""
    low, high = ends
    room = (high - low) * share if high > low else abs(low) * 0.1 or 0.5
    return low - room, high + room


def _legend_rows(legend: Sequence[tuple[str, str]], width: int) -> list[list[tuple[str, str]]]:
    rows: list[list[tuple[str, str]]] = []
    room = 0.0
    for name, shade in legend:
        entry = (shortened(name, 40), shade)
        needed = 40 + LETTER * len(entry[0])
        if not rows or needed > room:
            rows.append([])
            room = width - 62.0
        rows[-1].append(entry)
        room -= needed
    return rows


def _thinned(points: list[Point]) -> list[Point]:
    """Return at most `MOST_POINTS` of the points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    places = (round(number * (len(points) - 1) / (MOST_POINTS - 1)) for number in range(MOST_POINTS))
    return [points[place] for place in places]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
