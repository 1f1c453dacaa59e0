"""SLURM's script, with what SLURM sets and programs of the names of its own, and the manifest for
Kubernetes.
"""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import yaml

from litlab.runs.folder import RunFolder, read_json
from tests.conftest import CONFIGS
from tests.processes import Python, ranks

CLUSTER = CONFIGS / "cluster"
EPOCHS = 3
SETTINGS = f"""
    --trainer.accelerator=cpu --trainer.max_epochs={EPOCHS} --early_stopping=null
    --allow_modules=tests --trainer.precision=32-true --trainer.enable_progress_bar=false
    --data.batch_size=64 --test_after_fit=false
    --trainer.callbacks=tests.litlab.commands.sweep.trouble.Held
""".split()


def test_slurm_script_saves_requeues_and_resumes(tmp_path, monkeypatch):
    """With two tasks on two nodes, and programs of the names of SLURM's."""
    programs, gate = tmp_path / "bin", tmp_path / "gate"
    programs.mkdir()
    lines = {"srun": 'printf "%s\\n" "$@" > srun.txt', "scontrol": 'echo "$@" >> asked.txt'}
    for name, line in lines.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name, value in (("JOB_NUM_NODES", 2), ("NTASKS_PER_NODE", 1), ("CPUS_PER_TASK", 1)):
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    settings = [*SETTINGS, f"--trainer.callbacks.file={gate}"]
    script = ["bash", CLUSTER / "slurm.sh", CONFIGS / "tabular.yaml", *settings]
    subprocess.run(script, cwd=tmp_path, check=True)
    options, _, command = (tmp_path / "srun.txt").read_text().partition("python\n")
    assert options == "--wait=300\n"

    run = RunFolder(tmp_path / "lightning_logs/tabular/version_0")
    tasks = start(command.splitlines(), tmp_path)
    while not read_json(run.metrics).get("epochs"):
        assert tasks[0].poll() is None, tasks[0].printed()
        time.sleep(0.02)
    tasks[1].send_signal(signal.SIGUSR1)
    gate.touch()  # for which the second epoch has waited
    assert [task.wait(60) for task in tasks] == [128 + signal.SIGUSR1] * 2, tasks[0].printed()
    assert (tmp_path / "asked.txt").read_text() == "requeue 7\n"
    assert 0 < read_json(run.metrics)["epochs"] < EPOCHS

    again = start(command.splitlines(), tmp_path, SLURM_RESTART_COUNT=1)
    assert [task.wait(60) for task in again] == [0, 0], again[0].printed()
    assert read_json(run.metrics)["epochs"] == EPOCHS
    assert [*run.path.parent.iterdir()] == [run.path]


def start(command: list[str], folder: Path, **environment: object) -> list[Python]:
    """Starts a command as two tasks of a job, each on a node of its own."""
    shared = f"""
        SLURM_JOB_ID=7 SLURM_JOB_NAME=fit SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=1 SLURM_NNODES=2
        SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=0 SLURM_NODELIST={socket.gethostname()}
        MASTER_ADDR=127.0.0.1 MASTER_PORT={ranks(2)[0]["MASTER_PORT"]}
    """
    job = dict(pair.split("=") for pair in shared.split()) | environment
    tasks = [job | {"SLURM_PROCID": number, "SLURM_NODEID": number} for number in range(2)]
    return [Python(*command, cwd=folder, merge=True, environment=task) for task in tasks]


def test_kubernetes_manifest_fits_together(run):
    service, _, job = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    options = dict(word.removeprefix("--").split("=") for word in container["command"][1:])
    assert int(options["nnodes"]) == spec["completions"] == spec["parallelism"]
    names = [part["metadata"]["name"] for part in (job, service)]
    assert options["rdzv_endpoint"] == f"{names[0]}-0.{names[1]}:29400"
    labels = spec["template"]["metadata"]["labels"]
    assert labels == labels | service["spec"]["selector"]

    command = [str(word) for word in container["args"]][2:]
    command[command.index("configs/cifar.yaml")] = str(CONFIGS / "tabular.yaml")
    trainer = yaml.safe_load(run(*command, "--print_config").check().out)["trainer"]
    nodes = [str(trainer[name]) for name in ("num_nodes", "devices")]
    assert nodes == [options["nnodes"], options["nproc_per_node"]]
