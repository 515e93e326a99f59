"""Text from outside (engines, models, devices, files) made safe to show: in a terminal, in XML, in one line."""

from __future__ import annotations

import re

# CSI sequences (colours, cursor), OSC sequences (titles, links) and the two-character escapes.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_]|\x9b[0-?]*[ -/]*[@-~]")
# What XML 1.0 forbids or discourages (controls, surrogates, non-characters), and the marks that reorder text.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef]"
    "|[\ufffe\uffff" + "".join(chr(plane * 0x10000 + last) for plane in range(1, 17) for last in (0xFFFE, 0xFFFF)) + "]"
)


def printable(text: str) -> str:
    """`text` without terminal escapes, line ends as `\\n`, and every unsafe character as its escape (`\\x00`).

    The result is valid in XML 1.0 and has a UTF-8 encoding.
    """
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(lambda match: _escape(match.group()), plain)


def one_line(text: str, limit: int | None = None) -> str:
    """`printable` text with all white space folded, and cut to `limit` characters (it says so)."""
    if limit is None:
        return " ".join(printable(text).split())
    # Most of a huge text is never shown: it need not be made printable.
    line = " ".join(printable(text[: 16 * limit]).split())
    if len(line) <= limit and len(text) <= 16 * limit:
        return line
    return f"{line[: limit - 4]} ..."


def capped(text: str, limit: int) -> str:
    """`text`, or its beginning and its end with a line between them that says how much was left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def encodable(text: str, encoding: str) -> str:
    """`text` with every character that `encoding` lacks as its escape; an unknown encoding counts as ASCII."""
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode("ascii")


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
