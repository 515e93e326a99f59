"""An argument parser whose every complaint is a UsageError with the nearest known option."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from conformance.names import UsageError, unknown


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, with the nearest known option or choice."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **arguments)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse everything; an argument that is left over is a fault."""
        options, left = self.parse_known_args(args, namespace)
        known = [option for action in self._actions for option in action.option_strings]
        strange = [each.partition("=")[0] for each in left if each.startswith("-")]
        if strange:  # what is left over beside an unknown option is most likely its value
            raise UsageError(*(unknown("option", each, known) for each in strange))
        if left:
            raise UsageError(f"unexpected {' '.join(left)!r}; see {self.prog} --help")
        return options

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting with argparse's own code."""
        raise UsageError(f"{message}; see {self.prog} --help")
