"""What a worker answers: it holds one runner and turns requests into replies, in whatever process it lives.

A request is `{"method": name, "args": [...], "kwargs": {...}}` with `load`, `facts`, `close` or a runner's method.
A reply is `{"ok": value}` or `{"error": {"kind", "type", "message", "traceback"}}`.
"""

from __future__ import annotations

import importlib
import platform
import re
import resource
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Literal, cast

from conformance.codec import ProtocolError
from conformance.runner import EngineGone, LoadRequest, NotSupported, Runner, Unavailable

CALLS = frozenset(
    {
        *("embed", "score_pairs", "token_logprobs", "classify", "reward", "generate", "score_tokens"),
        *("vision_features", "attention"),
    }
)
"""The runner's methods that may be called from outside; nothing else of it can be."""

Kind = Literal["not_supported", "out_of_memory", "environment", "gone", "error"]
_MESSAGE_LIMIT = 8_192
_TRACEBACK_LIMIT = 32_768

# Whole phrases, because "oom" is also in "room". Allocators of every kind say one of these.
_OUT_OF_MEMORY = re.compile(
    r"(?<![^\W_])out[ _]of[ _](\w+[ _])?memory\b|can(not|'t| not) allocate memory|not enough memory"
    r"|failed to allocate \d|\bbad_alloc\b|\w_ALLOC_FAILED\b|unable to (m|re)?map .*\bmemory\b",
    re.IGNORECASE,
)
_NO_DEVICE = re.compile(
    r"not compiled with \S+ enabled|\bno [\w -]*(gpu|device)s? (is|are|was|were) (available|detected|found|visible)"
    r"|found no [\w ]*driver|no [\w -]*capable device|cannot find [\w ]*driver",
    re.IGNORECASE,
)


class Host:
    """Serves one runner, from `load` to `close`."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._entered = False
        self.closed = False

    def reply(self, request: object) -> dict[str, Any]:
        """The answer to one request; whatever is raised on the way becomes an error reply."""
        loading = isinstance(request, Mapping) and request.get("method") in ("load", "facts")
        try:
            return {"ok": self._answer(request)}
        except BaseException as error:  # SystemExit too: an engine must not end its worker unseen
            return error_reply(error, loading=loading)

    def _answer(self, request: object) -> Any:
        if not isinstance(request, Mapping) or set(request) != {"method", "args", "kwargs"}:
            raise ProtocolError("a request should be a table of 'method', 'args' and 'kwargs'")
        method, args, kwargs = request["method"], request["args"], request["kwargs"]
        if method == "load":
            return self._load(*args, **kwargs)
        if method == "facts":
            return self._facts(*args, **kwargs)
        if method == "close":
            return self._close()
        if method not in CALLS:
            raise ProtocolError(f"{method!r} is no method of a runner; they are {', '.join(sorted(CALLS))}")
        if self._runner is None:
            raise ProtocolError(f"{method} was asked for before load")
        if method not in self._runner.capabilities:
            # Not left to the adapter: what it does not announce must not be measured by accident.
            offered = ", ".join(sorted(self._runner.capabilities)) or "nothing"
            raise NotSupported(f"{type(self._runner).__name__} does not offer {method}; it offers {offered}")
        return getattr(self._runner, method)(*args, **kwargs)

    def _load(self, engine_class: str, request: LoadRequest) -> dict[str, Any]:
        if self._runner is not None:
            raise ProtocolError("load was asked for twice; a worker hosts one runner")
        kind = import_named(engine_class)
        if not (isinstance(kind, type) and issubclass(kind, Runner)):
            raise ProtocolError(f"{engine_class} is {kind!r}, but should be a subclass of conformance.runner.Runner")
        unknown = kind.capabilities - CALLS
        if unknown:
            raise ProtocolError(f"{engine_class} claims the capabilities {sorted(unknown)}, which no runner has")
        self._runner = kind(request)
        self._runner.__enter__()
        self._entered = True
        return {"capabilities": sorted(self._runner.capabilities)}

    def _facts(self, probe: str | None = None, *arguments: Any) -> dict[str, Any]:
        probed = dict(cast("Mapping[str, Any]", import_named(probe)(*arguments))) if probe else {}
        return process_facts() | probed

    def _close(self) -> dict[str, Any]:
        self.closed = True
        if self._runner is not None and self._entered:
            self._entered = False
            notes = list(self._runner.notes)
            self._runner.__exit__(None, None, None)
            return process_facts() | {"notes": notes}
        return process_facts()


def error_reply(error: BaseException, *, loading: bool) -> dict[str, Any]:
    """The reply that carries an exception; `loading` says that nothing but load was asked for so far."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {
        "error": {
            "kind": error_kind(error, loading=loading),
            "type": type(error).__qualname__,
            "message": str(error)[:_MESSAGE_LIMIT],
            "traceback": text[-_TRACEBACK_LIMIT:],
        }
    }


def error_kind(error: BaseException, *, loading: bool) -> Kind:
    """What an exception, or one that it was explicitly raised from, says about the engine.

    Running out of memory is known by class (MemoryError, any OutOfMemoryError) or by an allocator's phrase in the
    message. A missing package or device counts as the environment's only while loading: later it is a finding.
    """
    if isinstance(error, NotSupported):
        return "not_supported"
    if isinstance(error, Unavailable):
        return "environment"
    if isinstance(error, EngineGone):
        return "gone"
    cause: BaseException | None = error
    for _ in range(8):  # a bound, as causes can form a ring
        if cause is None:
            break
        names = {kind.__name__ for kind in type(cause).__mro__}
        if names & {"MemoryError", "OutOfMemoryError"} or _OUT_OF_MEMORY.search(str(cause)):
            return "out_of_memory"
        if loading and (isinstance(cause, ImportError) or _NO_DEVICE.search(str(cause))):
            return "environment"
        cause = cause.__cause__
    return "error"


def import_named(name: str) -> Any:
    """The attribute that "module:attribute" names. Raises ImportError, or ProtocolError for another form."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ProtocolError(f"{name!r} should have the form module:attribute")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise ImportError(f"module {module} has no {attribute}") from error


def process_facts() -> dict[str, Any]:
    """The worker's interpreter, and peak resident memory in MiB: its own, and of its largest ended child."""
    unit = 2**20 if sys.platform == "darwin" else 2**10  # getrusage counts bytes on macOS, KiB elsewhere
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "python": platform.python_version(),
        "peak_resident_mib": own / unit,
        "peak_child_resident_mib": child / unit,
    }
