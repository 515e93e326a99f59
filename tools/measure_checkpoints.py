"""Measures the embedded checkpoints on this machine's CPU and writes their accuracy.json and README.md.

    python tools/measure_checkpoints.py FOLDER/NAME ...

Fails if an answer to the suites' own inputs is wrong, in float32 or bfloat16, with the sdpa or the eager kernels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

SEED = 1
COUNTS = {"generation": 32, "generation.window": 32, "multimodal": 24}
COUNT = 256


def _measure_one(folder: Path) -> list[str]:
    """Writes the folder's files; returns the faults in the suites' own inputs."""
    import torch
    import transformers
    from training import cards, measuring

    kind = measuring.task(folder.name)
    count = COUNTS.get(kind, COUNT)
    task = measuring.TASKS[kind][0]
    held_out, inputs, faults = {}, {}, []
    for dtype in ("float32", "bfloat16"):
        for attention in measuring.attentions(folder):
            checkpoint = measuring.Checkpoint(folder, getattr(torch, dtype), attention)
            inputs[dtype] = measuring.measure(checkpoint, task.inputs())
            faults += [f"{folder.name} {dtype} {attention}: {fault}" for fault in inputs[dtype].faults]
        held_out[dtype] = measuring.measure(checkpoint, task.held_out(SEED, count))
        print(folder.name, dtype, inputs[dtype].accuracy, held_out[dtype].accuracy, held_out[dtype].faults, flush=True)
    software = {"torch": torch.__version__, "transformers": transformers.__version__}
    cards.write_accuracy(folder, SEED, count, held_out, inputs, software)
    cards.write_card(folder)
    return faults


def main() -> int:
    """Measures each folder; exit code 1 if a right answer was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    faults = [fault for folder in parser.parse_args().folders for fault in _measure_one(folder.resolve())]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
