"""`fit --plan` of every shipped config, and of overlays that change a step."""

import re
import shlex

from tests.conftest import CONFIGS, PACKAGE


def test_the_first_that_fits_is_a_command_line(run, short, tmp_path):
    (tmp_path / "configs").symlink_to(CONFIGS)
    config = CONFIGS / "text.yaml"
    small = ["--model.embed_dim=64", "--model.num_layers=2", "--data.batch_size=8", "--trainer.precision=32-true"]
    asked = ["--plan", "1x2", "--plan_memory=0.03"]
    done = run("fit", "--config", config, *short(config), *small, *asked)
    *_, name, line = done.out.splitlines()
    assert name == "The first that fits: fsdp2"
    words = shlex.split(line)
    assert words[:4] == ["python", "-m", PACKAGE, "fit"]
    assert words[-3:] == ["--config=configs/with/fsdp2.yaml", "--trainer.devices=2", "--trainer.num_nodes=1"]
    again = run(*words[3:], *asked)
    assert again.code == 0, again.err
    assert "The first that fits" not in again.out


def test_what_it_says_to_add_is_there(run, short, tmp_path):
    (tmp_path / "configs").symlink_to(CONFIGS)
    config = CONFIGS / "text.yaml"
    done = run("fit", "--config", config, *short(config), "--plan", "1x2")
    rows = [re.findall(r"--\S+=\S+", line) for line in done.out.splitlines()]
    rows = [flags for flags in rows if flags]
    assert ["--trainer.strategy=ddp"] in rows
    assert ["--config=configs/with/fsdp2.yaml"] in rows
    for flags in rows:
        assert run("fit", "--config", config, *short(config), *flags, "--print_config").code == 0, flags
