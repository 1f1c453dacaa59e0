"""Where texts come from: the user's CSV files, a public data set, or the generator."""

import hashlib
from collections import Counter
from pathlib import Path

import torch

from project.data.text import public
from project.data.text.corpus import Corpus, Source
from project.data.text.generated import generated_class_names, generated_texts
from project.data.text.reading import Rows, no_file, read_rows
from project.errors import UserError

_GENERATED = {"train": 4_000, "test": 1_000}


def csv_source(
    path: Path, test_path: Path | None, columns: list[str] | None, text_columns: list[str], label_column: str
) -> Source:
    """Describe the user's own texts.

    Args:
        path: CSV file to train on.
        test_path: CSV file to test on, if there is one.
        columns: Names of the columns where the files have no row of names.
        text_columns: Columns that make up the text.
        label_column: Column of the labels.

    Raises:
        UserError: A file is not there.
    """
    files = {"train": (path, "data.path")} | ({"test": (test_path, "data.test_path")} if test_path else {})
    marks: list[object] = [columns, text_columns, label_column]
    for file, setting in files.values():
        if not file.is_file():
            raise UserError(no_file(file, setting))
        status = file.stat()
        marks += [str(file.resolve()), status.st_size, status.st_mtime_ns]

    def read() -> Corpus:
        rows = {
            split: read_rows(file, columns, text_columns, label_column, setting=setting)
            for split, (file, setting) in files.items()
        }
        class_names = _classes(path, rows["train"], label_column)
        number = {name: i for i, name in enumerate(class_names)}
        if test_path:
            for place, label in zip(rows["test"].numbers, rows["test"].labels, strict=True):
                if label not in number:
                    raise UserError(
                        f"{test_path}, row {place}: class {_short(label)} is not in {path}; "
                        f"add such texts there or delete the row"
                    )
        labels = {split: torch.tensor([number[label] for label in own.labels]) for split, own in rows.items()}
        return Corpus(class_names, {split: own.texts for split, own in rows.items()}, labels)

    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    return Source(stem, hashlib.sha256(repr(marks).encode()).hexdigest(), test_path is not None, None, read)


def public_source(name: str, root: Path) -> Source:
    """Describe a public data set. Its contents are known by checksum, so the cache is good without the files.

    Args:
        name: Key of `PUBLIC_SETS`.
        root: Folder of the files.
    """
    known = public.PUBLIC_SETS[name]
    digest = " ".join(file.digest for file in known.files)
    return Source(name, digest, True, list(known.class_names), lambda: public.read(name, root))


def generated_source(num_classes: int) -> Source:
    """Describe generated texts.

    Args:
        num_classes: 2 or 4.
    """
    class_names = generated_class_names(num_classes)

    def read() -> Corpus:
        made = {
            split: generated_texts(count, num_classes, seed) for seed, (split, count) in enumerate(_GENERATED.items())
        }
        texts = {split: texts for split, (texts, _) in made.items()}
        return Corpus(class_names, texts, {split: torch.tensor(labels) for split, (_, labels) in made.items()})

    return Source("generated-texts", f"{num_classes} {_GENERATED}", True, class_names, read)


def _classes(path: Path, rows: Rows, label_column: str) -> list[str]:
    """Names of the classes in order, after a look at whether each can be learned."""
    counts = Counter(rows.labels)
    for label, count in counts.items():
        if count == 1 and len(counts) > 1:
            place = rows.numbers[rows.labels.index(label)]
            raise UserError(
                f"{path}, row {place}: the only one of class {_short(label)}, which can't be split into training and "
                f"evaluation; add more or delete it (or set --data.label_column, if {label_column} is no label)"
            )
    if len(counts) < 2:
        raise UserError(f"{path}: column {label_column} has only the class {_short(rows.labels[0])}; 2 are needed")
    try:
        return sorted(counts, key=lambda label: (float(label), label))  # class 10 comes after class 9
    except ValueError:
        return sorted(counts)


def _short(label: str) -> str:
    return repr(label if len(label) <= 40 else label[:37] + "...")
