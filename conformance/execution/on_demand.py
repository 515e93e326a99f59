"""Runners that load when they are asked, each in place of the other: a suite may hold both, one is ever loaded."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from conformance.execution.errors import RemoteFailure
from conformance.runner import LoadRequest, Runner

_VARIANT = re.compile(r"\bvariant '([^']*)': ")


def variant_named(reason: str) -> str:
    """The variant that the reason of an outcome is about; empty for the engine as it is."""
    found = _VARIANT.search(reason)
    return found[1] if found else ""


class OnDemand:
    """Has the methods of the runner that `load` gives, which is asked for it before each use."""

    def __init__(self, request: LoadRequest, load: Callable[[], Runner]) -> None:
        self.request = request
        self._load = load

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            found = getattr(self._load(), name)
        except Exception as error:
            self._name(error)
            raise
        if not callable(found):
            return found

        @functools.wraps(found)
        def method(*args: Any, **kwargs: Any) -> Any:
            try:
                return found(*args, **kwargs)
            except Exception as error:
                self._name(error)
                raise

        return method

    def _name(self, error: Exception) -> None:
        """Have the message begin with the variant that it is about."""
        variant, text = self.request.variant, str(error)
        start = f"variant {variant!r}: "
        if variant and not text.startswith(start):
            error.args = (f"{start}{text}",)
            if isinstance(error, RemoteFailure):
                error.message = f"{start}{error.message}"
