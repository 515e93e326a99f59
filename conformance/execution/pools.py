"""The worker pools of a run: one for each interpreter, environment and set of imports, started on first use."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

from conformance.execution.errors import ExecutionError
from conformance.execution.process import WorkerPool


class Pools:
    """A context manager: leaving it ends every worker. Workers' output goes to a folder that ends with it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.workers_started = 0
        self._pools: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], WorkerPool] = {}

    def __enter__(self) -> Pools:
        self._logs = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pools.clear()
        self._stack.close()

    def get(self, runner_class: str, start: str, environment: Mapping[str, str], python: str = "") -> WorkerPool:
        """The pool to start one more worker from.

        Its workers run in the interpreter `python` (empty: this one), see `environment`, and have imported the module
        of `runner_class` ("module:Class"). Raises ServerDied where the interpreter cannot be started.
        """
        method: Literal["fork", "spawn"] = "spawn" if start == "spawn" else "fork"
        module = runner_class.partition(":")[0]
        self.workers_started += 1
        key = (python, module, method, tuple(sorted(environment.items())))
        if key not in self._pools or self._pools[key].dead:
            self._pools[key] = self._stack.enter_context(
                WorkerPool(
                    python or sys.executable,
                    environment=environment,
                    preload=[module] if method == "fork" else [],
                    start=method,
                    log_dir=self._logs / str(self.workers_started),
                )
            )
        return self._pools[key]

    def sweep(self) -> list[tuple[int, str]]:
        """End the processes that outlived their workers, in pools where no worker runs: their ids and names."""
        found: list[tuple[int, str]] = []
        for pool in self._pools.values():
            if not pool.dead:
                with contextlib.suppress(ExecutionError):  # told by whoever needs the pool next
                    found.extend(pool.sweep())
        return found
