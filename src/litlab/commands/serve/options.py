"""What is served, and how: what the command line says, and each worker gets."""

from dataclasses import dataclass, field

from litlab.util.team import package


@dataclass
class ServeOptions:
    """What is served, and how; each worker gets a copy."""

    run: str = ""  # run, checkpoint or folder of an export
    trust: bool = False  # whether an export that is code may be loaded
    host: str = "127.0.0.1"  # address to listen on
    port: int = 8000  # port; 0 for a free one
    workers: int = 1  # processes, each with a model
    batch_size: int = 32  # most requests that are computed together
    queue: int = 128  # most requests of a worker at a time
    timeout: float = 60.0  # seconds until a request is given up
    max_mb: float = 10.0  # megabytes of the largest body
    settings: list[str] = field(default_factory=list)  # settings of the run that differ
    token: str | None = None  # what a client must know; None: nobody is asked
    package: str = field(default_factory=package)  # the team's package
