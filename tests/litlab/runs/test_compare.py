"""`python -m auks compare`."""

import pytest
import yaml

from litlab.runs import compare
from litlab.runs.compare import flatten_origin
from litlab.runs.settings import differences, flatten
from litlab.util.options import answer
from tests.litlab.runs.make import write_group, write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    root = tmp_path / "lightning_logs"
    versions = {"python": "3.11.2", "torch": "2.14.0"}
    write_run(root, "cifar/version_0", best=0.8, test={"test/loss": 2.5}, versions=versions, hours_ago=5)
    write_run(root, "cifar/version_1", best=0.9, test={"test/loss": 3.5}, width=32, dirty=True,
              versions={**versions, "torch": "2.15.0"}, commit="f" * 40)  # fmt: skip
    return root


def show(capsys, *arguments: str) -> tuple[int, str, str]:
    code = answer(compare.main, list(arguments))
    return (code, *capsys.readouterr())


def rows(out: str) -> dict[str, list[str]]:
    return {line.split("  ")[0]: line.split("  ", 1)[1].split("  ") for line in out.splitlines() if "  " in line}


def cells(out: str, name: str) -> list[str]:
    return [cell.strip() for cell in rows(out)[name] if cell.strip()]


def test_two_runs_side_by_side(root, capsys):
    code, out, err = show(capsys, "cifar/version_0", "cifar/version_1")
    assert (code, err) == (0, "")
    assert cells(out, "model.width") == ["16", "32"]
    assert cells(out, "val/acc") == ["0.8", "0.9"]
    assert cells(out, "test/loss") == ["2.5", "3.5"]
    assert cells(out, "versions.torch") == ["2.14.0", "2.15.0"]
    assert cells(out, "dirty") == ["false", "true"]
    for same in ("seed_everything", "model", "versions.python"):
        assert same not in rows(out)


def test_a_group_is_one_column(root, capsys):
    write_group(root, "cifar/seeds_0", [0.8, 0.9], width=64)
    code, out, _ = show(capsys, "cifar/seeds_0", "cifar/version_0")
    assert code == 0
    assert cells(out, "model.width") == ["64", "16"]
    assert cells(out, "val/acc") == ["0.85 ± 0.05", "0.8"]


def test_a_run_that_lacks_what_another_has(root, capsys):
    other = write_run(root, "old/version_0")
    other.config.write_text(yaml.safe_dump({"model": {"class_path": "a.B", "init_args": {"num_layers": 3}}}))
    other.metrics.unlink()
    code, out, _ = show(capsys, "cifar/version_0", "old", "cifar")
    assert code == 0
    assert cells(out, "model.num_layers") == ["-", "3", "-"]
    assert cells(out, "val/acc") == ["0.8", "-", "0.9"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cifar", "cifra"], "cifra: there is no such run; did you mean 'cifar'"),
        (["cifar", "lost"], "lost/version_0/config.yaml: it can't be read"),
        (["cifar", "half"], "half/version_0/config.yaml"),
        (["cifar", "bad"], "bad/version_0/provenance.json: it holds no JSON object"),
        ([], "compare: the following arguments are required: RUN"),
    ],
)
def test_errors_are_one_line(root, capsys, arguments, line):
    write_run(root, "lost/version_0", hours_ago=9).config.unlink()
    write_run(root, "half/version_0", hours_ago=9).config.write_text("a: [")
    write_run(root, "bad/version_0", hours_ago=9).provenance.write_text("{")
    code, _, err = show(capsys, *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert line in err
    assert err.count("\n") == 1


def test_a_config_by_dotted_keys():
    config = yaml.safe_load("""
        model:
          class_path: auks.images.SmallCNN
          init_args:
            width: 16
            shape: [3, 32]
            optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}
        trainer:
          callbacks:
          - {class_path: auks.callbacks.Pictures, init_args: {images: 32}}
          - {class_path: litlab.callbacks.VRAM}
        ema: null
        plugins: []
    """)
    assert flatten(config) == {
        "model": "SmallCNN",
        "model.width": 16,
        "model.shape": [3, 32],
        "model.optimizer": "SGD",
        "model.optimizer.lr": 0.1,
        "trainer.callbacks.Pictures": "Pictures",
        "trainer.callbacks.Pictures.images": 32,
        "trainer.callbacks.VRAM": "VRAM",
        "ema": None,
        "plugins": [],
    }
    twice = [{"class_path": "a.B"}, {"class_path": "c.B"}]
    assert flatten({"logger": twice}) == {"logger": twice}


def test_differences():
    assert differences([{"a": 1, "b": 1}, {"a": 1, "b": 2}]) == {"b": [1, 2]}
    assert differences([{"a": 1}, {"a": 1}, {"c": 3}]) == {"a": [1, 1, None], "c": [None, None, 3]}


def test_of_the_provenance_what_every_run_has_of_its_own_is_left_out():
    origin = {"started": "x", "command": ["y"], "directory": "z", "seed": 1, "data": {"fingerprint": "f"}}
    assert flatten_origin(origin) == {"seed": 1, "data.fingerprint": "f"}
