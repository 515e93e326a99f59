"""Questions to a worker, whose death, silence or refusal is an answer too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from conformance.codec import ProtocolError
from conformance.execution.caller import RemoteCaller
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded, ExecutionError, RemoteFailure
from conformance.execution.pools import Pools
from conformance.execution.process import Worker


@dataclass(frozen=True)
class NoAnswer:
    """Why there is none, in one sentence; `raised` says that the worker lives and the question itself failed."""

    reason: str
    raised: bool = False


class Questioner:
    """Asks the functions of a module in one worker, which is replaced when it has died. A context manager.

    `preload` ("module:Class") is imported before a worker is forked; with `start="spawn"` it is not.
    """

    def __init__(
        self, pools: Pools, preload: str, start: str, environment: Mapping[str, str], probe: str, seconds: float
    ) -> None:
        self._pools = pools
        self._worker_of = (preload, start, environment)
        self._probe = probe
        self._seconds = seconds
        self._worker: Worker | None = None
        self._caller: RemoteCaller | None = None

    def __enter__(self) -> Questioner:
        self._pools.get(*self._worker_of)  # starts its imports, and does not wait for them
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, function: str, *arguments: object) -> Mapping[str, Any] | NoAnswer:
        """What `function` of the probe's module answers."""
        try:
            caller = self._living()
            answer: Mapping[str, Any] = caller.call(
                "facts", Deadline.after(self._seconds), f"{self._probe}:{function}", *arguments
            )
            return answer
        except RemoteFailure as error:
            return NoAnswer(f"{error.type_name}: {error.message}", raised=True)
        except DeadlineExceeded as error:
            self._end()
            return NoAnswer(f"no answer in time: {error}")
        except (ExecutionError, ProtocolError) as error:
            self._end()
            return NoAnswer(str(error))

    def _living(self) -> RemoteCaller:
        if self._caller is None or self._caller.dead is not None:
            self._end()
            self._worker = self._pools.get(*self._worker_of).start_worker()
            self._caller = RemoteCaller(self._worker)
        return self._caller

    def _end(self) -> None:
        worker, self._worker, self._caller = self._worker, None, None
        if worker is not None:
            worker.__exit__(None, None, None)
