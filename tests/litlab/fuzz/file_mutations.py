"""Ways in which a data file goes wrong: in its cells, its rows, its notation and its bytes."""

import gzip
import random
from collections.abc import Callable

Rows = list[list[str]]

CELLS = (
    "", " ", "nan", "None", "NULL", "N/A", "-", "?", "0", "-0", "1e30", "1e308", "-1e400", "inf", "-inf", "1_000",
    "0x10", "1,234.00", "3,5", "1.234,5", "5%", "12 kW", "1 234", "1\u202f234", "$5", "\u22125", "(5)", "1/2",
    "2024-01-01", "2024-13-01", "01/02/2024", "31.12.2024", "2024-01-01T00:00Z", "2024-01-01 00:00:00.5",
    "2024-01-01 07:20", "0001-01-01T00:00+14:00", "9999-12-31 23:59:59", "1704067200", "1701011200000", "00:00",
    "true", "a", "A", "a ", "1", "1.0", "\u0661", "train", "Test", "../0.png", "/dev/zero", "0.png/", "x" * 300,
    "\u200b", "\ufeff", "\u2028", "\x00", "\x1b[31m", "\U0001f600", '"', "'", "a\nb", "a\r\nb", ",", ";", "\t",
    "=1+1", "#REF!",
)  # fmt: skip


def spoilt(rows: Rows, rng: random.Random) -> bytes:
    """A CSV file with one to four things wrong with it.

    Args:
        rows: The cells of a good file, its header included.
        rng: Decides what goes wrong.
    """
    rows = [list(row) for row in rows]
    steps = rng.choices([*_OF_ROWS, *_OF_TEXT, *_OF_BYTES], k=rng.choice([1, 1, 1, 2, 4]))
    for step in steps:
        if step in _OF_ROWS and rows:
            step(rows, rng)
    text = _written(rows, rng)
    for step in steps:
        if step in _OF_TEXT:
            text = step(text, rng)
    codec = rng.choice(["utf-8"] * 40 + ["utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252", "utf-32"])
    data = text.encode(codec, "replace")
    for step in steps:
        if step in _OF_BYTES:
            data = step(data, rng)
    return data


def _written(rows: Rows, rng: random.Random) -> str:
    separator = rng.choice("," * 30 + ";\t|")
    end = rng.choice(["\n"] * 6 + ["\r\n", "\r"])
    quote = rng.random() < 0.97

    def cell(value: str) -> str:
        needed = any(mark in value for mark in (separator, '"', "\n", "\r"))
        return '"' + value.replace('"', '""') + '"' if needed and quote else value

    return end.join(separator.join(map(cell, row)) for row in rows) + end * rng.randint(0, 2)


def _row(rows: Rows, rng: random.Random) -> int:
    return rng.randrange(len(rows)) if rng.random() < 0.1 else rng.randrange(min(1, len(rows) - 1), len(rows))


def _change_cells(rows: Rows, rng: random.Random) -> None:
    value = rng.choice(CELLS)
    for _ in range(rng.choice([1, 1, 1, 2, 7])):
        row = rows[_row(rows, rng)]
        if row:
            row[rng.randrange(len(row))] = value if rng.random() < 0.5 else rng.choice(CELLS)


def _change_column(rows: Rows, rng: random.Random) -> None:
    place = rng.randrange(max(1, len(rows[0])))
    change = rng.choice([lambda v: v.replace(".", ","), lambda v: f"{v}%", lambda v: f"{v} kW", lambda v: f" {v}",
                         lambda _: rng.choice(CELLS), lambda v: v.replace("-", "/"), lambda _: "7", str.upper,
                         lambda v: v[:-1], lambda v: f"{v}+01:00", lambda v: v * 2])  # fmt: skip
    for row in rows[rng.randint(0, 1) :]:
        if place < len(row):
            row[place] = change(row[place])


def _drop_rows(rows: Rows, rng: random.Random) -> None:
    start = _row(rows, rng)
    del rows[start : start + rng.choice([1, 1, 3, len(rows)])]


def _repeat_row(rows: Rows, rng: random.Random) -> None:
    rows.insert(rng.randint(0, len(rows)), list(rows[_row(rows, rng)]))


def _shuffle(rows: Rows, rng: random.Random) -> None:
    body = rows[1:]
    if rng.random() < 0.5:
        body.reverse()
    else:
        rng.shuffle(body)
    rows[1:] = body


def _change_width(rows: Rows, rng: random.Random) -> None:
    for row in rows if rng.random() < 0.2 else [rows[_row(rows, rng)]]:
        if row and rng.random() < 0.5:
            row.pop(rng.randrange(len(row)))
        else:
            row.insert(rng.randint(0, len(row)), rng.choice(CELLS))


def _change_header(rows: Rows, rng: random.Random) -> None:
    if rows[0]:
        name = rng.choice([rng.choice(rows[0]), rng.choice(CELLS), rows[0][0].upper(), f" {rows[0][0]} "])
        rows[0][rng.randrange(len(rows[0]))] = name


def _blank_rows(rows: Rows, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 5])):
        rows.insert(rng.randint(0, len(rows)), rng.choice([[], [""] * len(rows[0])]))


def _insert_text(text: str, rng: random.Random) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice([*CELLS, '"', '"', '""', "\n", "\n\n", "sep=,\n"]) + text[place:]


def _cut_text(text: str, rng: random.Random) -> str:
    start = rng.randint(0, len(text))
    return text[:start] + text[start + rng.choice([1, 5, 50, len(text)]) :]


def _insert_bytes(data: bytes, rng: random.Random) -> bytes:
    place = rng.randint(0, len(data))
    some = rng.choice([b"\0", b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80", rng.randbytes(3)])
    return data[:place] + some + data[place:]


def _flip_bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(min(len(changed), rng.choice([1, 10]))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _compress(data: bytes, rng: random.Random) -> bytes:
    packed = gzip.compress(data)
    return packed if rng.random() < 0.5 else _flip_bits(packed, rng)[: rng.randint(1, len(packed))]


def _start_like(data: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"PK\x03\x04", b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"%PDF-1.7", b"\xef\xbb\xbf"]) + data


_OF_ROWS: list[Callable[[Rows, random.Random], None]] = [
    *[_change_cells] * 4, _change_column, _drop_rows, _repeat_row, _shuffle, _change_width, _change_header, _blank_rows,
]  # fmt: skip
_OF_TEXT: list[Callable[[str, random.Random], str]] = [_insert_text, _cut_text]
_OF_BYTES: list[Callable[[bytes, random.Random], bytes]] = [_insert_bytes, _flip_bits, _compress, _start_like]
