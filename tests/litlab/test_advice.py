"""What a message advises is done, to the letter, on what made it: then it is right.

Settings are taken from the message, and where it shows no value, from the table here. Of data the
numbers are compared that come out. Advice of the parser is followed in cli/test_parse_errors.py.
"""

import shlex
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import yaml

from litlab.data import ImageData, SeriesData, TabularData, TextData
from litlab.errors import UserError
from tests.litlab.conftest import CONFIGS
from tests.litlab.data.conftest import (  # noqa: F401 - two fixtures
    _folder,
    prepared,
    refusal,
    said,
)
from tests.litlab.data.images.conftest import write_image, write_images
from tests.litlab.runs.conftest import error

ROWS = 60
NUMBERS = np.random.default_rng(0).uniform(20, 200, ROWS).round(1)
WORDS = [*"abc"] * (ROWS // 3)
HOURS = pd.date_range("2024-01-01", periods=ROWS, freq="h")
DAYS = pd.date_range("2024-01-11", periods=ROWS)
LABELS = ["a;b", "b;c", "a"] * (ROWS // 3)
HOUSES = [f"{n}a" if n % 10 == 3 else f"{n}" for n in [*range(30)] * 2]
WAVE = np.sin(np.arange(ROWS)).round(3)


class Case(NamedTuple):
    """Data that makes a message, and what it says that sets it right.

    Args:
        kind: The DataModule.
        source: Columns besides those that all cases have; or a function that fills a folder.
        options: Settings that make the message.
        advice: The settings that are taken from it; a value that is not None stands here instead.
        look: What is right afterwards is the same as `right`: an attribute, or a function's result.
    """

    kind: Any
    source: Any
    options: dict[str, Any]
    advice: dict[str, Any]
    look: Any
    right: Any


def table(source, options, advice, look, right) -> Case:
    return Case(
        TabularData, {"size": NUMBERS, "kind": WORDS} | source, options, advice, look, right
    )


def series(source, options, advice, look, right) -> Case:
    options = {"context_length": 6, "horizon": 3, "season": 4} | options
    return Case(SeriesData, {"date": HOURS, "load": WAVE} | source, options, advice, look, right)


def images(options, advice, look, right, count=20, write_second=None) -> Case:
    """Grey images of 6 x 8; the second one may be another, or nothing that can be read."""

    def fill(root):
        write_images(root, count, size=(6, 8), mode="L")
        if write_second:
            write_second(root / "b/001.png")

    return Case(ImageData, fill, options, advice, look, right)


def column(name):
    return lambda data: pd.concat(data.table.values()).sort_index()[name].tolist()


def names(data):
    return data.metadata.numbers, data.metadata.category_columns


def count_samples(data):
    return sum(data.sizes.values())


def count_times(data):
    return len(data.times)


def written(numbers, form):
    return {"a": [form(f"{number:,.1f}") for number in numbers], "size": WORDS}


def swap(text):
    return text.translate(str.maketrans(",.", ".,"))


def apart(sign):
    return {"a": [f"1{sign}129", f"49{sign}194", "800"] * 20, "size": WORDS}


write_smaller = partial(write_image, size=(6, 7), mode="L")
LARGE = (NUMBERS * 1000 + 0.5).round(1)
WHOLE = [1129.0, 49194.0, 800.0] * 20
GAPS = {"load": [None if row in (7, 20) else row * 2.0 for row in range(ROWS)]}
TWO = {
    "date": [*HOURS, *HOURS],
    "load": [*WAVE, *WAVE + 5],
    "place": ["x"] * ROWS + ["y"] * ROWS,
}
CASES = [
    # How numbers are written
    table(written(NUMBERS, swap), {}, {"decimal": None}, column("a"), NUMBERS),
    table(written(NUMBERS, str), {"decimal": ","}, {"decimal": None}, column("a"),
          NUMBERS),
    table(written(LARGE, str), {}, {"thousands": None}, column("a"), LARGE),
    table(written(LARGE, swap), {"decimal": ","}, {"thousands": None}, column("a"), LARGE),
    table({"a": ["1.129.000", "49.194", "800"] * 20, "size": WORDS}, {},
          {"thousands": None, "decimal": None}, column("a"), [1129000.0, 49194.0, 800.0] * 20),
    *(
        table(apart(sign), {}, {"thousands": None}, column("a"), WHOLE)
        for sign in (",", "'", " ", "\u202f")
    ),
    table(apart(","), {}, {"decimal": None}, column("a"), [1.129, 49.194, 800.0] * 20),
    table(apart("."), {}, {"thousands": None, "decimal": None}, column("a"), WHOLE),
    table(apart("."), {"thousands": "."}, {"decimal": None}, column("a"), WHOLE),
    # What cells are
    table({"a": HOUSES, "b": [1, 2] * 30}, {"categories": ["b"]}, {"categories": None}, names,
          (["size"], ["a", "b"])),
    table({"kind": HOUSES}, {}, {"task": None}, "num_classes", 30),
    table({"a": [f"{n}{'AB'[n % 2]}" for n in [*range(30)] * 2]}, {}, {"categories": None}, names,
          (["size"], ["a"])),
    table({"a": ["?", *NUMBERS[1:]], "b": [*NUMBERS[1:], "-"]}, {"missing": ["-"]},
          {"missing": None}, lambda data: np.isnan(column("a")(data)).sum(), 1),
    table({"a": DAYS.astype(str)}, {}, {"dates": None}, lambda data: column("a days")(data)[:2],
          [19733.0, 19734.0]),
    table({"a": DAYS.astype(str), "b": [1] * ROWS}, {"ignore": ["b"]}, {"ignore": None}, names,
          (["size"], [])),
    table({"5 o'clock, EUR": [1] * ROWS, "2": [2] * ROWS, "no": [3] * ROWS}, {}, {"ignore": None},
          names, (["size"], [])),
    table({"id": range(1, ROWS + 1)}, {}, {"ignore": None}, names, (["size"], [])),
    table({"a": LABELS}, {"target": ["a"], "task": "labels"}, {"label_separator": ";"},
          "label_names", ["a", "b", "c"]),
    table({"a": [0, 1] * 30, "b": 1}, {"target": ["a", "b"], "ignore": ["b"], "task": "labels"},
          {"target": ["a"]}, "label_names", ["a"]),
    table({}, {"target": "price"}, {"target": "kind"}, "num_classes", 3),
    table({"a": "x"}, {"target": "a", "ignore": ["a"]}, {"target": "kind"},
          "num_classes", 3),
    table({"a": [True, False] * 30}, {"target": "a", "task": "regression"}, {"task": None},
          "class_names", ["False", "True"]),
    # Splits
    table({"a": DAYS.strftime("%d/%m/%Y")}, {"time_column": "a"}, {"time_format": "%d/%m/%Y"},
          lambda data: data.table["test"]["size"].tolist(), NUMBERS[48:]),
    table({"a": range(ROWS)}, {"cut": ["40", "50"]}, {"time_column": "a"},
          "sizes", {"train": 40, "val": 10, "test": 10}),
    table({"a": [0] * 30 + [1] * 30}, {"group_column": "a"}, {"val_fraction": None},
          "sizes", {"train": 30, "test": 30}),
    # Series
    series(GAPS, {}, {"gaps": None}, lambda data: data.series.table["load"].tolist(),
           np.arange(ROWS) * 2.0),
    series(TWO, {}, {"series_column": "place"}, lambda data: len(data.series.table), 2 * ROWS),
    series({}, {"freq": "D"}, {"freq": "h"}, count_times, ROWS),
    series({"date": DAYS.strftime("%Y%j")}, {}, {"time_format": "%Y%j"},
           lambda data: (data.times == DAYS.to_numpy("datetime64[s]")).all(), True),
    series({"when": HOURS}, {"time_column": "time"}, {"time_column": "when"},
           count_times, ROWS),
    series({}, {"context_length": 60}, {"context_length": 6}, count_times, ROWS),
    # Images and texts
    images({}, {"image_size": None}, "image_shape", (1, 224, 224), 4, write_smaller),
    images({}, {"image_size": None}, count_samples, 250, 250, write_smaller),
    images({}, {"mode": None}, "image_shape", (3, 6, 8), 250, partial(write_image, size=(6, 8))),
    images({}, {"bad_rows": None}, count_samples, 19, 20,
           lambda file: file.write_bytes(b"no image")),
    images({"normalize": "imagenet"}, {"mode": None}, "image_shape", (3, 6, 8)),
    images({"dataset": "generated"}, {"dataset": "folder"}, "class_names", [*"ab"]),
    images({"transform": [None]}, {"cache": None}, "is_lazy", True),
    Case(TextData, {"words": WORDS, "label": WORDS}, {}, {"text_columns": ["words"]},
         count_samples, ROWS),
]  # fmt: skip


def read_value(message: str, name: str) -> Any:
    """The value that a message shows behind a flag, as a shell and YAML read it."""
    text = message.partition(f"--data.{name}")[2].removeprefix("+")
    words = shlex.shlex(text, posix=True)
    words.whitespace_split, words.commenters = True, ""
    word = next(words)
    word = word if word == "," else word.rstrip(",")
    return yaml.safe_load(word) if word[0] in "[0" else word


def tell(build, options, said) -> str:  # noqa: F811
    """The refusal of some data, or the warnings."""
    said.clear()
    try:
        prepared(build(**options))
    except UserError as error:
        return str(error)
    return "\n".join(line for line in said if line.startswith("warning"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind.__name__} {case.advice}")
def test_advice_on_data(said, case):  # noqa: F811
    path = Path("images")
    if callable(case.source):
        case.source(path)
    else:
        path = Path("data.csv")
        pd.DataFrame(case.source).to_csv(path, index=False)
    build = partial(case.kind, path=path)
    options = ({"target": "kind"} if case.kind is TabularData else {}) | case.options

    message = tell(build, options, said)
    for name, value in case.advice.items():
        assert f"data.{name}" in message, message
        value = read_value(message, name) if value is None else value
        adds = f"--data.{name}+ " in message
        options[name] = [*options.get(name, []), *value] if adds else value
    after = prepared(build(**options))
    found = getattr(after, case.look) if isinstance(case.look, str) else case.look(after)
    np.testing.assert_equal(found, case.right)


def read_sizes(**options):
    """A column of my.csv."""
    return column("size")(prepared(TabularData(path="my.csv", target="kind", **options)))


@pytest.mark.parametrize(
    ("above", "code", "advice"),
    [
        ("", "latin-1", "save it again, texts in UTF-8"),
        ("a title\n", "utf-8", "delete what stands above"),
    ],
)
def test_a_file_is_read_once_it_is_saved_as_it_says(above, code, advice):
    path, text = Path("my.csv"), "size,kind\n" + "1,ä\n2,b\n" * 30
    path.write_text(above + text, code)
    assert advice in refusal(read_sizes)
    path.write_text(text, "utf-8")
    assert read_sizes() == [1, 2] * 30


@pytest.mark.parametrize("sign", [*",;\t", " "])
@pytest.mark.parametrize("end", ["begin", "end"])
def test_a_column_without_a_name_is_given_an_empty_one(sign, end):
    """As R's write.table leaves it out, and other programs behind the last column."""
    lines = [sign.join(("size", "kind"))]
    for row in zip(range(ROWS), NUMBERS, WORDS, strict=True):
        lines.append(sign.join(map(str, row if end == "begin" else (*row[1:], ""))))
    path, form = Path("my.csv"), {}
    path.write_text("\n".join(lines))
    if sign == " ":
        form["delimiter"] = read_value(refusal(read_sizes), "delimiter")
    assert f"{end} the row of names with {sign!r}" in refusal(read_sizes, **form)
    lines[0] = sign + lines[0] if end == "begin" else lines[0] + sign
    path.write_text("\n".join(lines))
    assert read_sizes(**form) == NUMBERS.tolist()


ENDLESS = "--trainer.max_epochs -1 --trainer.max_time 00:00:00:09"
SCHEDULE = "--model.schedule.scheduler"
# The experiment, flags that are wrong, a part of the line, and the flags as it says, if the
# experiment does not say so anyway
SETTINGS = [
    ("text", "--trainer.limit_train_batches 0", "set it higher", ""),
    ("images", f"{SCHEDULE} OneCycleLR {SCHEDULE}.max_lr 0.1 {SCHEDULE}.total_steps 1",
     "leave its length out", f"{SCHEDULE} OneCycleLR {SCHEDULE}.max_lr 0.1"),
    ("images", f"{SCHEDULE} CosineAnnealingLR {ENDLESS}",
     "set it, or trainer.max_steps", f"{SCHEDULE} CosineAnnealingLR --trainer.max_steps 2"),
    ("text", "--swa {}", "set ema or swa to null", "--swa {} --ema null"),
    ("series", f"--swa {{}} {ENDLESS}",
     "set trainer.max_epochs", "--swa {} --trainer.max_epochs 2"),
    ("text", "--checkpoint.mode min", "set max, or leave mode out", ""),
    ("text", "--checkpoint.monitor val/new --checkpoint.mode null", "set min or max", ""),
    ("text", "--checkpoint.monitor val/ac", "did you mean 'val/acc'?", ""),
    ("text", "--model.class_weights even --data.balance even", "leave one of the two out",
     "--model.class_weights even"),
    ("text", "--trainer.callbacks+ OptimizerInBackward --trainer.gradient_clip_val 1",
     "(set nan_guard, agc and grad_norms to null)",
     "--trainer.callbacks+ OptimizerInBackward --nan_guard null"),
    ("text", "--freeze.rules '[{params: \"*\", epochs: 1}]'", "put a rule with epochs: 0",
     "--freeze.rules '[{params: network.head*, epochs: 0}, {params: \"*\", epochs: 1}]'"),
    ("table", "--model.mixup 0.2", "leave them out", ""),
    ("table", "--data.target spend", "use --model Regressor",
     "--data.target spend --model Regressor"),
    ("table", "--model Regressor", "use --model Classifier", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wrong", "says", "right"), SETTINGS)
def test_advice_on_settings(run, short, name, wrong, says, right):
    small = [] if name == "table" else short(CONFIGS / f"{name}.yaml")
    limits = [f"--trainer.limit_{split}_batches=2" for split in ("train", "val", "test")]
    command = ["fit", f"--config={CONFIGS / name}.yaml", *small, *limits]
    check = ["--check"] * (len(wrong) % 2)  # in turns
    assert says in error(run(*command, *check, *shlex.split(wrong)))
    if right:
        run(*command, *shlex.split(right)).check()
