"""Reading YAML: encodings, and what is YAML but can only be a mistake."""

import os
from pathlib import Path

import pytest

from litlab.errors import UserError
from litlab.util.yaml_files import DEEPEST, LARGEST, read_mapping

GOOD = "trainer: {max_epochs: 3}\nname: Grüße\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"]
)
def test_every_usual_encoding_is_read(tmp_path, encoding):
    (tmp_path / "a.yaml").write_bytes(GOOD.encode(encoding))
    assert read_mapping(tmp_path / "a.yaml") == {"trainer": {"max_epochs": 3}, "name": "Grüße"}


def test_numbers_are_numbers_and_dates_are_text(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "a: 1e-3\nb: -1E4\nc: .5\nd: 1_000\ne: .inf\nf: 2024-01-31\ng: 1,5\nh: 7\ni: 0x10\n"
    )
    assert list(read_mapping(tmp_path / "a.yaml").values()) == [
        0.001, -10000.0, 0.5, 1000, float("inf"), "2024-01-31", "1,5", 7, 16,
    ]  # fmt: skip


def test_what_is_no_mistake(tmp_path):
    text = (
        "base: &b {x: 1, y: [1, 2]}\nuse: {<<: *b, x: 2}\nagain: [*b, *b]\nmodel: {init_args: {names: {0: a, 1: b}}}\n"
    )
    (tmp_path / "a.yaml").write_text(text)
    content = read_mapping(tmp_path / "a.yaml")
    assert content["use"] == {"x": 2, "y": [1, 2]}
    assert content["model"]["init_args"]["names"] == {0: "a", 1: "b"}


BILLIONS = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
BILLIONS += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdef", "bcdefg", strict=True)]
REFUSED = {
    "section twice": ("trainer: {a: 1}\nx: 1\ntrainer: {b: 2}\n", ":3: trainer: the key is there twice, first in"),
    "key twice": ("a:\n  b: 1\n  c: 2\n  b: 3\n", ":4: a.b: the key is there twice, first in line 2; keep one"),
    "key twice in a list": ("a: [{b: 1, b: 1}]\n", ":1: a.0.b: the key is there twice"),
    "anchor in itself": ("a: &x [1, *x]\n", ":1: a.1: the anchor contains itself; remove one of the two"),
    "anchor in its own key": ("a: &x {b: *x}\n", ":1: a.b: the anchor contains itself; remove one of the two"),
    "merged into itself": ("a: &x {<<: *x}\n", ":1: a.<<: the anchor contains itself; remove one of the two"),
    "billions": (
        "\n".join(BILLIONS),
        ": more than 20,000 values, aliases included; use fewer",
    ),
    "deep": ("a: " + "[" * 100_000, f":1: more than {DEEPEST} levels of nesting; use fewer"),
    "deep by aliases": (
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000)),
        f": more than {DEEPEST} levels of nesting; use fewer",
    ),
    "number as key": ("1: 2\n", ":1: 1: YAML reads the key as a number; quote it"),
    "number as setting": (
        "model: {init_args: {0: 1}}\n",
        ":1: model.init_args.0: YAML reads the key as a number; quote it",
    ),
    "null as key": ("null: 2\n", ":1: null: YAML reads the key as null; quote it"),
    "truth as key": ("trainer:\n  on: 3\n", ":2: trainer.on: YAML reads the key as true or false; quote it"),
    "list as key": ("? [a]\n: b\n", ":1: "),
    "tag": ("a: !!python/object/apply:os.system [ls]\n", ":1: not valid YAML: the tag '!!python/object/apply:os.sys"),
    "documents": ("a: 1\n---\nb: 2\n", ":2: not valid YAML: a second document begins here; keep one"),
    "tab": ("a:\n\tb: 1\n", ":2: not valid YAML: there is a tab; indent with spaces"),
    "open bracket": ("a: {b: 1\n", ":1: not valid YAML: it ends too early"),
    "wrong sign": ("a: @x\n", ":1: not valid YAML: a value can't begin with @"),
    "control character": ("a: \x01\n", ":1: not valid YAML: control characters are not allowed"),
    "empty": ("", ": the file holds nothing; it needs keys and values, such as trainer: {max_epochs: 3}"),
    "comment": ("# nothing\n", ": the file holds nothing"),
    "list": ("- a\n", ": the file holds a list"),
    "text": ("hello\n", ": the file holds a single value"),
    "binary": (b"\x89PNG\r\n\x1a\n\0\0\0\1", ": it is a binary file; give a YAML file"),
    "huge": (b"a: 1\n" * (LARGEST // 5 + 1), ": it is larger than 1 MB; give a config"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_with_their_line(tmp_path, case):
    content, says = REFUSED[case]
    file = tmp_path / "a.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        read_mapping(file)
    assert str(caught.value).startswith(f"{file}:")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/cifar.yaml").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret.yaml").write_text(GOOD)
    for name, says in {
        "configs/cifr.yaml": "configs/cifr.yaml: no such file; did you mean 'configs/cifar.yaml'?",
        "configs": "configs: it is a folder; give a YAML file",
        "pipe": "pipe: it is a named pipe; give a YAML file",
        "x" * 300: "the file can't be read (File name too long); give another one",
        "a\0b": "can't be read",
    }.items():
        with pytest.raises(UserError) as caught:
            read_mapping(Path(name))
        assert says in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_not_called_damaged(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "a.yaml").chmod(0)
    with pytest.raises(UserError, match=r"can't be read \(Permission denied\)"):
        read_mapping(tmp_path / "a.yaml")
