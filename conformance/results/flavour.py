"""The flavours of junit.xml: its readers do not agree on what may stand in it."""

from __future__ import annotations

from conformance.names import UsageError, unknown

DEFAULT_FLAVOUR = "properties"

FLAVOURS = {
    DEFAULT_FLAVOUR: "with the figures as properties of each testcase, which most readers show or pass over",
    "strict": "without them, as the schema of the Jenkins xUnit plug-in demands",
}
"""Name and meaning of each. In all of them the figures are in `system-out`."""


def known_flavour(name: str) -> str:
    """`name`; raises UsageError, with the nearest known one, where there is no such flavour."""
    if name not in FLAVOURS:
        raise UsageError(unknown("JUnit flavour", name, FLAVOURS))
    return name
