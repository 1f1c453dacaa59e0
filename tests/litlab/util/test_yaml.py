"""Reading YAML: what it means, and what is refused with its line."""

from pathlib import Path

import pytest

from litlab.errors import UserError
from litlab.util.yaml import find_line, read_mapping

GOOD = "trainer: {max_epochs: 3}\nname: Grüße\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf_8_is_read_with_and_without_a_mark(tmp_path, encoding):
    (tmp_path / "a.yaml").write_bytes(GOOD.encode(encoding))
    assert read_mapping(tmp_path / "a.yaml") == {"trainer": {"max_epochs": 3}, "name": "Grüße"}


def test_numbers_are_numbers_and_dates_are_text(tmp_path):
    text = "a: 1e-3\nb: -1E4\nc: .5\nd: 1_000\ne: .inf\nf: 2024-01-31\ng: 1,5\nh: 7\ni: 0x10\n"
    (tmp_path / "a.yaml").write_text(text)
    values = [0.001, -10000.0, 0.5, 1000, float("inf"), "2024-01-31", "1,5", 7, 16]
    assert list(read_mapping(tmp_path / "a.yaml").values()) == values


def test_aliases_and_merged_keys_are_no_mistake(tmp_path):
    (tmp_path / "a.yaml").write_text("base: &b {x: 1, y: [1, 2]}\nuse: {<<: *b, x: 2}\nagain: [*b, *b]\n")
    assert read_mapping(tmp_path / "a.yaml")["use"] == {"x": 2, "y": [1, 2]}


BILLIONS = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
BILLIONS += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)]


def test_values_by_aliases_are_shared_not_copied(tmp_path):
    (tmp_path / "a.yaml").write_text("\n".join(BILLIONS))
    content = read_mapping(tmp_path / "a.yaml")
    assert content["k"][0] is content["k"][8]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("trainer: {a: 1}\nx: 1\ntrainer: {b: 2}\n", ":3: not valid YAML: trainer is there twice"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", ":4: not valid YAML: b is there twice"),
        ("a: [{b: 1, b: 1}]\n", ":1: not valid YAML: b is there twice"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1: not valid YAML: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2: not valid YAML: but found another document"),
        ("a:\n\tb: 1\n", ":2: not valid YAML: found character that cannot start any token"),
        ("a: {b: 1\n", ":2: not valid YAML: did not find expected ',' or '}'"),
        ("a: \x01\n", "control characters are not allowed"),
        ("", ": it holds no keys and values; write some, such as trainer: {max_epochs: 3}"),
        ("- a\n", ": it holds no keys and values"),
        ("hello\n", ": it holds no keys and values"),
        ("name: Grüße".encode("latin-1"), ": it can't be read (it is not UTF-8); give a YAML file in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\1", ": it can't be read (it is not UTF-8)"),
    ],
    ids=range(13),
)
def test_a_mistake_is_one_line_with_its_place(tmp_path, content, says):
    file = tmp_path / "a.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        read_mapping(file)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{file}:")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/cifar.yaml").write_text(GOOD)
    with pytest.raises(UserError, match=r"^configs/cifr.yaml: no such file; did you mean 'configs/cifar.yaml'\?"):
        read_mapping(Path("configs/cifr.yaml"))
    with pytest.raises(UserError, match=r"^configs: it can't be read \(Is a directory\)"):
        read_mapping(Path("configs"))


def test_the_line_of_a_key_is_found_through_classes(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("model:\n  class_path: Mine\n  init_args:\n    optimizer:\n      init_args:\n        lr: 1\n")
    assert find_line(file, "model.optimizer.lr") == 6
    assert find_line(file, "model.optimizer.beta") is None
