"""The text of limits.toml with what was measured and the values that follow; everything else stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from conformance.criteria.limit import Measured
from conformance.results.printable import one_line

_HEADER = re.compile(r"\[(?P<name>[A-Za-z0-9_.-]+)\]\s*")


def proposed_text(text: str, values: Mapping[str, float], measured: Mapping[str, Sequence[Measured]]) -> str:
    """`text` with new values, and with measurements that take the place of those on the same class of device.

    KeyError for an entry that the text does not have.
    """
    blocks = _blocks(text)
    missing = [name for name in values if name not in blocks]
    if missing:
        raise KeyError(", ".join(missing))
    replaced = {f"{name}.measured.{each.device}" for name, every in measured.items() for each in every}
    lines: list[str] = []
    waiting: list[str] = []  # measurements that come behind those of other classes
    for name, block in blocks.items():
        if not any(name.startswith(f"{entry}.measured.") for entry in measured):
            lines += waiting
            waiting = []
        if name in replaced:
            continue
        if name in values:
            block = [_valued(line, values[name]) for line in block]
        lines += block
        for each in measured.get(name, ()):
            waiting += _table(name, each)
    return "\n".join([*lines, *waiting]).rstrip("\n") + "\n"


def _blocks(text: str) -> dict[str, list[str]]:
    """Lines by the table that they stand in, each block with its header and its trailing blank line; "" is the top."""
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            current = found.setdefault(header["name"], [])
        current.append(line)
    for name, block in found.items():
        if name and block[-1].strip():
            block.append("")
    return found


def _valued(line: str, value: float) -> str:
    """The line with the new value; as it was written where it is the same number."""
    key, equals, old = line.partition("=")
    same = not equals or key.strip() != "value" or float(old) == value
    return line if same else f"value = {_number(value)}"


def _table(name: str, measured: Measured) -> list[str]:
    on = ", ".join(_quoted(each) for each in measured.on)
    return [
        f"[{name}.measured.{measured.device}]",
        f"p999 = {_number(measured.p999)}",
        f"worst = {_number(measured.worst)}",
        f"samples = {measured.samples}",
        f"on = [{on}]",
        f"when = {measured.when.isoformat()}",
        f"command = {_quoted(measured.command)}",
        "",
    ]


def _quoted(text: str) -> str:
    """A TOML string. What TOML and UTF-8 lack, a path in a command may have: it is written as its escape."""
    return json.dumps(one_line(text), ensure_ascii=False)


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
