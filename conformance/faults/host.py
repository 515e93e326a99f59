"""The loaded model that a fault is injected into."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.engines.loaded_model import LoadedModel


class Host:
    """A runner whose model has been loaded, and what injections may do to it."""

    def __init__(self, runner: LoadedModel) -> None:
        self.runner = runner
