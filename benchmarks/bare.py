"""The bare script: the default run's forwards in plain transformers and torch, one process, nothing judged.

It reads a list of work as JSON from standard input, and writes to the file that it is given what it did:

    [{"role": "embedding.last", "model": "...", "folder": "...", "parameters": {...}, "attention": "sdpa",
      "dtype": "bfloat16", "parts": ["reference", "bfloat16-fused"], "observations": ["vectors", "shortened"]}]

It uses none of the suite's engines, execution, criteria or results, only the inputs of the suites, which are data.
The same batches are formed by the same rule, the same tokens forced, the same shipped references read.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from bare_model import Asked
from bare_roles import role


def main(output: str) -> int:
    """Do the work; the peak is this process's own (Linux)."""
    done = []
    for work in json.load(sys.stdin):
        started = time.perf_counter()
        kind = role(work["role"])
        asked = Asked(work, kind.auto, is_decoder=kind.is_decoder)
        loaded = time.perf_counter()
        forwards: dict[str, int] = {}
        with torch.no_grad():
            for name in work["observations"]:
                before = asked.forwards
                kind.answers[name](asked)
                forwards[name] = asked.forwards - before + forwards.get(kind.rests_on.get(name, ""), 0)
        ended = time.perf_counter()
        done.append(
            {
                **{key: work[key] for key in ("model", "attention", "dtype")},
                "load_s": loaded - started,
                "answer_s": ended - loaded,
                "forwards": forwards,
            }
        )
        del asked
    Path(output).write_text(json.dumps({"done": done, "peak_mib": peak_mib()}))
    return 0


def peak_mib() -> float:
    """The most memory that this process had resident since it started this program."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
