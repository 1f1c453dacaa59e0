"""What `fit --plan` says to add exists."""

import re

from tests.conftest import CONFIGS


def test_what_it_says_to_add_is_there(run, short, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "configs").symlink_to(CONFIGS)
    config = CONFIGS / "text.yaml"
    done = run("fit", "--config", config, *short(config), "--plan", "1x2")
    rows = [re.findall(r"--\S+=\S+", line) for line in done.out.splitlines()]
    rows = [flags for flags in rows if flags]
    assert ["--trainer.strategy=ddp"] in rows
    assert ["--config=configs/with/fsdp2.yaml"] in rows
    for flags in rows:
        assert run("fit", "--config", config, *short(config), *flags, "--print_config").code == 0, flags
