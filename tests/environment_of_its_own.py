"""Interpreters of environments of their own, made in a moment: nothing but numpy, or what a test puts there."""

from __future__ import annotations

import venv
from pathlib import Path

import numpy as np


def make(folder: Path, *, has_numpy: bool = True, distributions: dict[str, str] | None = None) -> Path:
    """The interpreter of a new environment that has numpy and the metadata of these distributions, and no more."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    if has_numpy:
        installed = Path(np.__file__).parents[1]
        for name in ("numpy", "numpy.libs", f"numpy-{np.__version__}.dist-info"):
            if (installed / name).exists():
                (packages / name).symlink_to(installed / name)
    for name, version in (distributions or {}).items():
        info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder / "bin" / "python"
