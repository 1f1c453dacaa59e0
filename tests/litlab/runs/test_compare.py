"""`python -m auks compare`."""

import io

import pytest
import yaml
from rich.console import Console

from litlab.runs import compare
from litlab.runs.compare import MISSING, differences, flat_config, flat_provenance, metrics_table
from litlab.runs.folder import read_json
from tests.litlab.runs.make import write_run


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


def compared(capsys, *arguments: str) -> tuple[int, str, str]:
    code = compare.main(list(arguments))
    return (code, *capsys.readouterr())


def rows(out: str) -> dict[str, list[str]]:
    return {line.split("  ")[0]: line.split()[-2:] for line in out.splitlines() if "  " in line}


def test_two_runs_side_by_side(root, capsys):
    code, out, err = compared(capsys, "cifar/version_0", "cifar/version_1")
    assert (code, err) == (0, "")
    found = rows(out)
    assert found["model.width"] == ["16", "32"]
    assert found["val/acc"] == ["0.8", "0.9"]
    assert found["test/loss"] == ["2.5", "3.5"]
    assert found["versions.torch"] == ["2.14.0", "2.15.0"]
    assert found["commit"] == ["1234567890ab", "ffffffffffff"]
    assert found["dirty"] == ["false", "true"]
    for same in ("seed_everything", "model", "versions.python"):
        assert same not in found


def test_the_better_value_is_bold(root):
    runs = [read_json(root / f"cifar/version_{number}/metrics.json") for number in (0, 1)]
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=100, color_system="standard").print(metrics_table(["a", "b"], runs))
    lines = {line.split()[0]: line for line in out.getvalue().splitlines() if "/" in line}
    bold = "\x1b[1;32m"
    assert f"{bold}0.9" in lines["val/acc"]
    assert f"{bold}2.5" in lines["test/loss"]
    assert bold not in lines["val/loss"]  # both are the same


def test_runs_that_are_the_same_say_so(root, capsys):
    write_run(root, "cifar/version_2", versions={"python": "3.11.2", "torch": "2.14.0"})
    _, out, _ = compared(capsys, "cifar/version_0", "cifar/version_2")
    assert "The settings are the same." in out
    assert "Code, versions, hardware and data are the same." in out


def test_three_runs_one_of_which_has_no_records(root, capsys):
    old = root / "old" / "version_0"
    (old / "checkpoints").mkdir(parents=True)
    (old / "config.yaml").write_text(yaml.safe_dump({"model": {"class_path": "a.B", "init_args": {"num_layers": 3}}}))
    code, out, _ = compared(capsys, "cifar/version_0", "old", "cifar")
    assert code == 0
    [depth] = [line.split() for line in out.splitlines() if line.startswith("model.num_layers")]
    assert depth == ["model.num_layers", "-", "3", "-"]
    [accuracy] = [line.split() for line in out.splitlines() if line.startswith("val/acc")]
    assert accuracy == ["val/acc", "0.8", "-", "0.9"]


def test_a_damaged_file_is_named_and_the_rest_is_shown(root, capsys):
    (root / "cifar/version_0/metrics.json").write_text("{")
    (root / "cifar/version_0/config.yaml").write_text("a: [")
    code, out, _ = compared(capsys, "cifar/version_0", "cifar/version_1")
    out = out.replace("\n", " ")
    assert code == 0
    assert "cifar/version_0/metrics.json is damaged" in out
    assert "cifar/version_0/config.yaml is damaged" in out
    assert "versions.torch" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cifar"], "compare: cifar is one run; give two or more."),
        (["cifar", "cifar/version_1"], "compare: cifar and cifar/version_1 are the same run; give two or more."),
        (["cifar", "cifra"], "there is no run 'cifra'; did you mean 'cifar'"),
        ([], "compare: the following arguments are required: RUN"),
    ],
)
def test_errors_are_one_line(root, capsys, arguments, line):
    code, out, err = compared(capsys, *arguments)
    assert (code, out) == (2, "")
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
          - {class_path: auks.callbacks.Pictures, init_args: {images: 8}}
        ema: null
        plugins: []
    """)
    assert flat_config(config) == {
        "model": "SmallCNN",
        "model.width": 16,
        "model.shape": [3, 32],
        "model.optimizer": "SGD",
        "model.optimizer.lr": 0.1,
        "trainer.callbacks.Pictures": "Pictures",
        "trainer.callbacks.Pictures.images": 32,
        "trainer.callbacks.VRAM": "VRAM",
        "trainer.callbacks.Pictures#2": "Pictures",
        "trainer.callbacks.Pictures#2.images": 8,
        "ema": None,
        "plugins": [],
    }


def test_differences():
    assert differences([{"a": 1, "b": 1}, {"a": 1, "b": 2}]) == {"b": [1, 2]}
    assert differences([{"a": 1}, {"a": 1}, {"c": 3}]) == {"a": [1, 1, MISSING], "c": [MISSING, MISSING, 3]}


def test_of_the_provenance_what_every_run_has_of_its_own_is_left_out():
    made = {"started": "x", "command": ["y"], "directory": "z", "seed": 1, "data": {"fingerprint": "f"}}
    assert flat_provenance(made) == {"seed": 1, "data.fingerprint": "f"}
