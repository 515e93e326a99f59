"""Trains the embedded checkpoints from a seed, all at once on one device, and writes their folders.

    python tools/train_checkpoints.py --output FOLDER [--only NAME ...] [--device cuda|cpu] [--steps N]

Each is trained in a process of its own. `tools/measure_checkpoints.py` then measures them and writes their cards.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder that takes one folder per checkpoint")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="train these, default all")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, help="fewer steps than planned, to try the script")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end the schedule after this time at the latest"
    )
    parser.add_argument("--seed", type=int, help="instead of the planned seeds")
    return parser.parse_args()


def _train_together(names: list[str], options: argparse.Namespace) -> int:
    """One process per checkpoint; returns how many failed."""
    common = [sys.executable, __file__, "--output", str(options.output), "--device", options.device]
    common += ["--seconds", str(options.seconds)]
    if options.seed is not None:
        common += ["--seed", str(options.seed)]
    if options.steps is not None:
        common += ["--steps", str(options.steps)]
    children = [subprocess.Popen([*common, "--only", name]) for name in names]
    return sum(child.wait() != 0 for child in children)


def main() -> int:
    """Trains the named checkpoints, or all; exit code 1 if a training failed, 4 for an unknown name."""
    options = _arguments()
    from training.checkpoints import PLANS, train_one

    names = options.only or list(PLANS)
    unknown = sorted(set(names) - set(PLANS))
    if unknown:
        print(f"no checkpoint is named {', '.join(unknown)}; there are {', '.join(PLANS)}", file=sys.stderr)
        return 4
    if len(names) > 1:
        return min(1, _train_together(names, options))
    train_one(names[0], options.output, options.seed, options.device, options.steps, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
