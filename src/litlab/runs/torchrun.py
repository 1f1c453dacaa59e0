"""The processes that torchrun has started, and starts again when one of them fails."""

import os
import time
from datetime import timedelta
from uuid import uuid4

from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch.distributed import DistError, TCPStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.constants import default_pg_timeout
from typing_extensions import override

from litlab.errors import UserError

SECONDS_BETWEEN_LOOKS = 0.05
TO_CONNECT = timedelta(minutes=1)
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


class RestartedEnvironment(TorchElasticEnvironment):
    """Let processes that torchrun starts again find each other, and none of those that are gone.

    torch (2.10 to 2.15) lets all starts use one store, that of torchrun's first agent. There the addresses of the
    processes before are still to be read, and a start that reads one of them fails. So the first rank of each start
    opens a store of its own, and tells the others its port through that of torchrun: whoever asks gives a name that
    nobody has used before, and only a first rank that is alive can answer it. (``TORCHELASTIC_RESTART_COUNT`` does not
    tell the starts apart: each agent counts for itself.)
    """

    def __init__(self) -> None:
        super().__init__()
        self._port: int | None = None

    @property
    @override
    def main_port(self) -> int:
        if os.environ.get(AGENT_STORE) == "True":
            agents = TCPStore(self.main_address, super().main_port, is_master=False, timeout=default_pg_timeout)
            self._port = self._open(agents) if self.global_rank() == 0 else self._ask(agents)
            os.environ[AGENT_STORE] = "False"  # or torch would take it for a port of torchrun's
        return super().main_port if self._port is None else self._port

    def _open(self, agents: TCPStore) -> int:
        """Open a store, and answer the other ranks until all of them have joined it."""
        self._store = TCPStore(self.main_address, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        waiting = set(range(1, self.world_size()))
        while waiting:
            for rank in waiting:
                if agents.check([f"name {rank}"]):  # it may be that of a process that is gone
                    agents.set(f"port for {agents.get(f'name {rank}').decode()}", str(self._store.port))
            waiting = {rank for rank in waiting if not self._store.check([f"joined {rank}"])}
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return self._store.port

    def _ask(self, agents: TCPStore) -> int:
        """Join the store of the first rank."""
        name = uuid4().hex
        agents.set(f"name {self.global_rank()}", name)
        port = int(agents.get(f"port for {name}"))
        try:
            store = TCPStore(self.main_address, port, is_master=False, timeout=TO_CONNECT)
            store.set(f"joined {self.global_rank()}", "")
        except DistError as error:
            raise UserError(
                f"trainer.num_nodes: rank {self.global_rank()} can't connect to rank 0 at {self.main_address}, port "
                f"{port}; let the machines of a run connect to each other on all ports"
            ) from error
        return port
