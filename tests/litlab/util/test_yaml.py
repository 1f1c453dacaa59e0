"""Reading YAML: what it means, and what is refused with its line."""

import pytest

from litlab.errors import UserError
from litlab.util.yaml import find_line, read_mapping


def test_what_values_mean(tmp_path):
    file = tmp_path / "a.yaml"
    text = "a: 1e-3\nb: -1E4\nc: .5\nd: 1_000\ne: .inf\nf: 2024-01-31\ng: 1,5\nh: 7\ni: 0x10\nj: Grüße\n"
    file.write_text(text, encoding="utf-8-sig")
    values = [0.001, -10000.0, 0.5, 1000, float("inf"), "2024-01-31", "1,5", 7, 16, "Grüße"]
    assert list(read_mapping(file).values()) == values
    file.write_text("base: &b {x: 1, y: [1, 2]}\nuse: {<<: *b, x: 2}\n")
    assert read_mapping(file)["use"] == {"x": 2, "y": [1, 2]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("trainer: {a: 1}\nx: 1\ntrainer: {b: 2}\n", ":3: not valid YAML: trainer is there twice"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1: not valid YAML: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2: not valid YAML: but found another document"),
        ("", ": it holds no keys and values; write some, such as trainer: {max_epochs: 3}"),
        ("name: Grüße".encode("latin-1"), ": it can't be read (it is not UTF-8); give a YAML file in UTF-8"),
    ],
    ids=range(5),
)
def test_a_mistake_is_one_line_with_its_place(tmp_path, content, says):
    file = tmp_path / "a.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        read_mapping(file)
    assert says in str(caught.value)


def test_the_line_of_a_key_is_found_through_classes(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("model:\n  class_path: Mine\n  init_args:\n    optimizer:\n      init_args:\n        lr: 1\n")
    assert find_line(file, "model.optimizer.lr") == 6
    assert find_line(file, "model.optimizer.beta") is None
