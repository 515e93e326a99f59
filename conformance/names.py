"""Names that people type and names that files bring: suggestions for the unknown ones, safe printing of the rest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """What was asked cannot be done as asked: the command line, or a file it names, has to change (exit code 4).

    `faults` holds every fault that was found, one sentence each, so that all can be mended in one go.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known name, or, where none is near, all of them."""
    names = sorted(set(known))
    folded = {known_name.casefold(): known_name for known_name in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    return f"known are {', '.join(names)}" if names else "none is known"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence: `unknown KIND 'NAME'; did you mean 'OTHER'?`."""
    return f"unknown {kind} {printable(name)!r}; {did_you_mean(name, known)}"


def printable(text: str) -> str:
    """`text` without what could steer a terminal: control characters, and marks that reverse the reading order."""
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() and not "\u202a" <= c <= "\u202e"))
