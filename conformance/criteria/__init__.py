"""The rules that judge: one file per kind of output, pure functions over arrays, each answering a `Judgement`.

The modules are loaded on first use, because they need numpy and a suite file must be importable without it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = (
    "attention",
    "attention_probes",
    "bitwise",
    "classes",
    "matched",
    "metamorphic",
    "observed",
    "score",
    "served",
    "tokens",
    "vector",
    "vision",
)


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
