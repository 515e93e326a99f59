"""A vendor's package as pip would install it: a folder for PYTHONPATH with packages and entry points."""

from __future__ import annotations

from pathlib import Path

PROFILE = """
[backend]
name = "acme"
description = "Acme accelerators"
device = "acme"
default_engines = ["transformers"]

[dtypes]
default = ["bfloat16"]
supported = ["bfloat16"]

[engines.transformers]
installed_by = "transformers"

[engines.transformers.attention.acme_flash]
precision = { bfloat16 = "fused" }
kernels = ["acme::flash"]

[[quirks]]
id = "acme-colours"
kind = "accuracy"
when = { suite = "colours", device = "Acme 1*" }
effect = { skip = true }
reason = "the Acme 1 sees no red"
evidence = [{ tried = { dtype = "float32" }, outcome = "FAIL" }]
uncovered = "colours on the Acme 1"
link = "acme issue 7"
owner = "acme"
added = 2026-08-28
expires = 2027-02-28
"""

SUITE = '''
"""Colours."""
from types import SimpleNamespace
from unittest import TestCase


class Colours(TestCase):
    role = "colours"

    def test_red_is_red(self):
        """Red."""

    test_red_is_red.requirement = SimpleNamespace(id="COL-010", statement="Red MUST be red.", answers=False)
'''

MODELS = """
[models.tiny-colours]
roles = ["colours"]
tier = "embedded"
folder = "checkpoints/tiny-colours"
architecture = "ToyColours"
"""


def install(site: Path, distribution: str = "acme-conformance", package: str = "acme", backend: str = "acme") -> Path:
    """Put a distribution with a backend and a suite into `site`."""
    for folder, name, text in (
        (f"{package}_backend", "profile.toml", PROFILE.replace('"acme"', f'"{backend}"', 1)),
        (f"{package}_suites", "models.toml", MODELS.replace("tiny", package)),
        (f"{package}_suites", "colours.py", SUITE),
    ):
        (site / folder).mkdir(parents=True, exist_ok=True)
        (site / folder / "__init__.py").touch()
        (site / folder / name).write_text(text)
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[conformance.backends]\n{backend} = {package}_backend\n\n"
        f"[conformance.suites]\ncolours = {package}_suites.colours\n"
    )
    return site
