"""What torch.compile made of the model: graphs, the breaks between them, recompilations."""

import textwrap
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Graph:
    """One graph that the compiler handed to its backend.

    Attributes:
        compile_id: Dynamo's ``frame/n`` for the frame's n-th compilation.
        again: Whether the frame had been compiled before.
        place: ``file:line`` and the line of user code where the graph ends in a break; empty where it ends normally.
        reason: Why the graph was broken there; empty where it ends normally.
    """

    compile_id: str
    again: bool
    place: str
    reason: str


class GraphRecorder:
    """A backend for ``torch.compile`` that notes down each graph and hands it on to the real backend.

    The breaks thus come from the real batches of the real run, and nothing runs twice.

    Args:
        backend: Name of the backend that compiles.
        mode: Mode of ``inductor``.
        dynamic: As given to ``torch.compile``; some modes depend on it.
    """

    def __init__(self, backend: str, mode: str, dynamic: bool | None) -> None:
        from torch._dynamo.backends.registry import lookup_backend
        from torch._dynamo.utils import clear_compilation_metrics, set_compilation_metrics_limit

        self._compile = lookup_backend(backend)
        self._options: dict[str, Any] = {}
        if backend == "inductor" and mode != "default":
            self._options["config_patches"] = torch._inductor.list_mode_options(mode, dynamic)
        self.graphs: list[Graph] = []
        # Dynamo's own notes hold what a backend never sees: why a frame was compiled again, and frames given up.
        clear_compilation_metrics()
        set_compilation_metrics_limit(10_000)

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        """Note down the graph and compile it."""
        from torch._guards import CompileContext

        place = reason = ""
        why = getattr(graph, "compile_subgraph_reason", None)  # parts that DDP's optimizer cut off have none
        if why is not None and why.graph_break:
            if why.user_stack:
                frame = why.user_stack[-1]
                place = f"{frame.filename}:{frame.lineno}: {frame.line}"
            reason = why.reason
            if reason.startswith("generic_jump"):
                reason = f"A branch that depends on a tensor's value ({reason})"
        compile_id = CompileContext.current_compile_id()
        again = compile_id is not None and (compile_id.frame_compile_id or 0) > 0
        self.graphs.append(Graph(str(compile_id), again, place, reason))
        return self._compile(graph, inputs, **self._options)

    def breaks(self) -> dict[tuple[str, str], int]:
        """Return how often the graph was broken, for each place and reason, frames given up included."""
        found: dict[tuple[str, str], int] = {}
        for graph in self.graphs:
            if graph.reason:
                found[graph.place, graph.reason] = found.get((graph.place, graph.reason), 0) + 1
        for note in _dynamo_notes():
            if note.fail_reason is not None and note.co_filename is not None:
                place = f"{note.co_filename}:{note.co_firstlineno}: {note.co_name} is not compiled at all"
                found[place, note.fail_reason] = found.get((place, note.fail_reason), 0) + 1
        return found

    def recompilations(self) -> dict[str, str]:
        """Return the reason for each time a frame was compiled again, by its ``frame/n``."""
        again = {graph.compile_id: "" for graph in self.graphs if graph.again}
        for note in _dynamo_notes():
            if note.compile_id in again and note.recompile_reason:
                again[note.compile_id] = note.recompile_reason
        return again

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of graphs, of places with a break, and of recompilations."""
        return len(self.graphs), len(self.breaks()), len(self.recompilations())

    def summary(self) -> str:
        """Return the counts in one line."""
        graphs, breaks, again = self.counts()
        return f"torch.compile: {graphs} graph(s), {breaks} break(s), {again} recompilation(s)"

    def report(self) -> str:
        """Return the whole report."""
        lines = [self.summary()]
        for number, ((place, reason), times) in enumerate(self.breaks().items(), 1):
            lines += ["", f"Break {number}, met {times} time(s), at {place or 'an unknown line'}"]
            lines += [textwrap.indent(reason.strip(), "    ")]
        for compile_id, reason in self.recompilations().items():
            lines += ["", f"Compiled again ({compile_id}): {reason or 'no reason given'}"]
        return "\n".join(lines) + "\n"


def _dynamo_notes() -> list[Any]:
    from torch._dynamo.utils import get_compilation_metrics

    return get_compilation_metrics()
