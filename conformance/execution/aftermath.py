"""What a target leaves behind once its worker has ended: processes, memory, a device that computes something else.

A device that is not as it was before would make every case that is left fail, or run into its time-out, one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.codec import ProtocolError
from conformance.execution.caller import ask_facts
from conformance.execution.errors import EnvironmentLacking, ExecutionError
from conformance.execution.holder import Load
from conformance.execution.pools import Pools

HEALTH = "conformance.engines.device:health"
PROBE_SECONDS = 120.0  # for a fresh worker to import its engine, see the device and multiply; without the settling
SETTLE_SECONDS = 10.0
"""How long memory may take to come back."""

LEAST_TOLERANCE = 512 * 2**20
"""Bytes that other programs may take meanwhile; of an accelerator's memory, a fiftieth where that is more."""

_PAUSE = 0.2
_GIB = 2**30


@dataclass(frozen=True)
class HostMemory:
    """Bytes that programs could have, and bytes of shared memory, which nobody frees when a program ends."""

    available: int
    shared: int

    def has_lost(self, before: HostMemory) -> bool:
        """Whether memory has gone that the end of a process does not give back. Other programs' own does not count."""
        gone, kept = before.available - self.available, self.shared - before.shared
        return min(gone, kept) > LEAST_TOLERANCE


def host_memory(meminfo: Path = Path("/proc/meminfo")) -> HostMemory | None:
    """The host's memory now; None where the system does not say."""
    try:
        lines = (line.split() for line in meminfo.read_text("ascii").splitlines())
        table = {words[0]: int(words[1]) * 2**10 for words in lines if len(words) > 1}
        return HostMemory(table["MemAvailable:"], table["Shmem:"])
    except (OSError, ValueError, KeyError):
        return None


class Aftermath:
    """Asked before each loading, while nothing is loaded. `note` is told of processes that had to be killed.

    The CPU costs a look at the processes and the memory; only where something is wrong there does a fresh worker
    multiply. An accelerator is asked, in a fresh worker, before the first target, between targets and after a crash.
    """

    def __init__(
        self,
        device: str,
        pools: Pools,
        note: Callable[[str], None],
        memory: Callable[[], HostMemory | None] = host_memory,
    ) -> None:
        self._device = device
        self._pools = pools
        self._note = note
        self._memory = memory
        self._ended: Load | None = None  # that was loaded last
        self._host: HostMemory | None = None
        self._free: int | None = None  # bytes of the device, before the first target
        self.is_doubted = False

    def doubt(self) -> None:
        """A worker was lost: look again before the next loading, also of the same target."""
        self.is_doubted = True

    def fault(self, coming: Load) -> str | None:
        """What the targets so far left, so that `coming` must not be loaded; None where all is as it was."""
        orphans = self.sweep()
        ended, self._ended = self._ended, coming
        is_doubted, self.is_doubted = self.is_doubted, False
        if self._device == "cpu" or "url" in coming.request.options:  # a server's device is where the server is
            lost = self._lost_memory()
            return lost or (self._unwell(coming) if orphans else None)
        if ended is None or ended.place[0] != coming.place[0] or is_doubted or orphans:
            return self._unwell(coming)
        return None

    def sweep(self) -> bool:
        """Kill what outlived its worker; whether there was anything."""
        orphans = self._pools.sweep()
        after = f" of {' '.join(self._ended.place)}" if self._ended is not None else ""
        for pid, name in orphans:
            self._note(f"the process {pid} ({name}) outlived the worker{after} and was killed")
        return bool(orphans)

    def _lost_memory(self) -> str | None:
        now = self._memory()
        before = self._host = self._host or now
        if now is None or before is None:
            return None
        until = time.monotonic() + SETTLE_SECONDS
        while now is not None and now.has_lost(before) and time.monotonic() < until:
            time.sleep(_PAUSE)
            now = self._memory()
        if now is None or not now.has_lost(before):
            return None
        return (
            f"{now.available / _GIB:.2f} GiB of the host's memory are available, {before.available / _GIB:.2f} GiB "
            f"were before the first target, and {(now.shared - before.shared) / _GIB:.2f} GiB more are shared memory "
            f"that nobody has given back within {SETTLE_SECONDS:g} s (look into /dev/shm)"
        )

    def _unwell(self, load: Load) -> str | None:
        try:
            pool = self._pools.get(load.engine_class, load.start, load.environment, load.python)
            known = ask_facts(pool, HEALTH, PROBE_SECONDS + SETTLE_SECONDS, self._device, self._free, SETTLE_SECONDS)
        except EnvironmentLacking:  # nothing there can multiply, so nothing there holds the device
            return None
        except (ExecutionError, ProtocolError) as error:
            return f"a product of matrices in a fresh worker did not end well: {str(error).strip().splitlines()[0]}"
        if not known["device"]["available"]:
            return str(known["device"]["reason"])
        if known["product"]:
            return f"a product of matrices in a fresh worker is wrong: {known['product']}"
        free, total = known["free"], known["total"]
        if free is None:
            return None
        if self._free is None:  # less a margin, so that the probe does not wait for what others took
            self._free = max(0, int(free) - max(LEAST_TOLERANCE, int(total) // 50))
        if free >= self._free:
            return None
        return (
            f"{free / _GIB:.2f} GiB of the device's memory are free after {SETTLE_SECONDS:g} s, and before the first "
            f"target at least {self._free / _GIB:.2f} of {total / _GIB:.2f} GiB were"
        )
