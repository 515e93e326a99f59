"""Stand-in, for tests alone: declares the two compiled operators without which torchvision cannot be imported.

torchvision's wheels are built for a CUDA build of torch; beside a CPU build its library does not load, and importing it
fails on `torchvision::nms`. Nothing that is tested calls either operator. Python imports this module by its name in
every process that has the folder on PYTHONPATH, spawned workers included; torch is imported only with torchvision.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

LIBRARIES = []
"""Keeps the definitions alive: they end with the object that made them."""


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing; declares the operators when torchvision is first looked for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            LIBRARIES.append(library)
        return None


sys.meta_path.insert(0, Finder())
