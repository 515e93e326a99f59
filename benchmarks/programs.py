"""Programs that are measured: wall time, processor time, and the peak memory of the very process that was started."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 3600.0
_LOOK_SECONDS = 0.02


class NotMeasured(Exception):
    """A program did not do what was to be measured, so there is no figure."""


@dataclass(frozen=True)
class Measured:
    """What a program cost. `cpu_s` counts its descendants' processor time too; `peak_mb` (10^6 bytes) is its own."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(
    arguments: Sequence[str], environment: Mapping[str, str], *, text: str = "", limit_s: float = LIMIT_SECONDS
) -> Measured:
    """Run `python ARGUMENTS` with `text` as its input, in the checkout's root.

    The peak is the kernel's own mark (VmHWM), read while the process lives: neither what it started nor what started
    it counts, as they do in getrusage. Raises NotMeasured, with the end of what it wrote, unless it ends with 0.
    """
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+", errors="replace") as said:
        given.write(text)
        given.seek(0)
        before, started = os.times(), time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=dict(environment), stdin=given, stdout=said, stderr=said
        )
        peak = 0.0
        while True:
            peak = max(peak, _peak_mb(process.pid))
            try:
                code = process.wait(_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if time.perf_counter() - started > limit_s:
                    process.kill()
                    process.wait()
                    raise NotMeasured(f"{' '.join(arguments)}: had not ended after {limit_s:g} s") from None
            except BaseException:
                process.kill()  # its workers end with it
                process.wait()
                raise
        wall, after = time.perf_counter() - started, os.times()
        if code != 0:
            said.seek(0)
            raise NotMeasured(f"{' '.join(arguments)}: exit code {code}\n{said.read()[-2000:]}")
    if peak == 0:
        raise NotMeasured(f"{' '.join(arguments)}: its memory cannot be read from /proc, as Linux has it")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured(wall, cpu, peak)


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:")), 0.0)
