"""selftest.svg: detection against false alarms of our judgements and of every rule elsewhere, a panel for each suite.

ElementTree escapes what names bring along; no script, no style sheet, no font but the reader's own.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from conformance.results.printable import one_line
from conformance.selftest.tally import Cell, RuleTally
from conformance.selftest.trial import OURS

_SIDE, _MARGIN, _COLUMNS = 220, 56, 3  # of a panel, around it, side by side
_LINE = 16
_COLOURS = (
    "#d62728",
    "#1f77b4",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
    "#ff7f0e",
)


def svg(total: Cell, suites: Sequence[Cell], title: str) -> bytes:
    """The plot, UTF-8. A rule that looked at none of a panel's outputs is left out of it."""
    panels = [("all suites", total), *((f"{one.suite}, {one.dtype}", one) for one in suites)]
    rows = -(-len(panels) // _COLUMNS)
    step = _SIDE + 2 * _MARGIN
    rules = [tally.rule for tally in total.rules]
    legend = (len(rules) + 2) * _LINE
    width, height = _COLUMNS * step, rows * step + legend + _MARGIN
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(width),
            "height": str(height),
            "viewBox": f"0 0 {width} {height}",
            "font-family": "sans-serif",
            "font-size": "11",
        },
    )
    ElementTree.SubElement(root, "title").text = one_line(title)
    _rectangle(root, 0, 0, width, height, fill="white", stroke="none")
    _text(root, _MARGIN, 24, title, size=14)
    for index, (name, cell) in enumerate(panels):
        left = (index % _COLUMNS) * step + _MARGIN
        top = (index // _COLUMNS) * step + _MARGIN
        _panel(root, left, top, name, cell, rules)
    for index, tally in enumerate(total.rules):
        _legend(root, _MARGIN, rows * step + _MARGIN + index * _LINE, index, tally)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _panel(root: ElementTree.Element, left: int, top: int, name: str, cell: Cell, rules: Sequence[str]) -> None:
    _rectangle(root, left, top, _SIDE, _SIDE, fill="none", stroke="#444")
    _text(root, left, top - 6, name, size=12)
    for share in (0, 25, 50, 75, 100):
        offset = _SIDE * share // 100
        _line(root, left + offset, top, left + offset, top + _SIDE)
        _line(root, left, top + offset, left + _SIDE, top + offset)
        _text(root, left + offset, top + _SIDE + 13, f"{share}%", anchor="middle", size=9)
        _text(root, left - 4, top + _SIDE - offset + 3, f"{share}%", anchor="end", size=9)
    _text(root, left + _SIDE // 2, top + _SIDE + 27, "correct outputs accused", anchor="middle", size=10)
    label = _text(root, left - 34, top + _SIDE // 2, "faults found", anchor="middle", size=10)
    label.set("transform", f"rotate(-90 {left - 34} {top + _SIDE // 2})")
    taken: dict[tuple[int, int], int] = {}
    for tally in reversed(cell.rules):  # ours last, on top
        if not tally.detected.total or not tally.alarms.total:
            continue
        x = left + round(_SIDE * tally.alarms.count / tally.alarms.total)
        y = top + _SIDE - round(_SIDE * tally.detected.count / tally.detected.total)
        beside = taken.get((x, y), 0)  # points that coincide stand side by side
        taken[x, y] = beside + 1
        _mark(root, x + 9 * beside, y, rules.index(tally.rule))


def _legend(root: ElementTree.Element, left: int, top: int, index: int, tally: RuleTally) -> None:
    _mark(root, left, top - 4, index)
    found, accused = tally.detected, tally.alarms
    told = f"{tally.rule}: {found.count} of {found.total} faults found, {accused.count} of {accused.total} correct "
    _text(root, left + 12, top, f"{told}outputs accused (at most {100 * accused.bound:.3g}% with 95% confidence)")


def _mark(root: ElementTree.Element, x: int, y: int, index: int) -> None:
    ours = index == 0
    colour = _COLOURS[index % len(_COLOURS)]
    place = {"cx": str(x), "cy": str(y), "r": "6" if ours else "4"}
    style = {"fill": colour, "stroke": "white" if index < len(_COLOURS) else "black"}
    point = ElementTree.SubElement(root, "circle", {**place, **style})
    ElementTree.SubElement(point, "title").text = OURS if ours else f"rule {index}"


def _rectangle(root: ElementTree.Element, x: int, y: int, width: int, height: int, **style: str) -> None:
    place = {"x": str(x), "y": str(y), "width": str(width), "height": str(height)}
    ElementTree.SubElement(root, "rect", {**place, **style})


def _line(root: ElementTree.Element, x1: int, y1: int, x2: int, y2: int) -> None:
    place = {"x1": str(x1), "y1": str(y1), "x2": str(x2), "y2": str(y2)}
    ElementTree.SubElement(root, "line", {**place, "stroke": "#ddd"})


def _text(
    root: ElementTree.Element, x: int, y: int, text: str, *, anchor: str = "start", size: int = 11
) -> ElementTree.Element:
    style = {"x": str(x), "y": str(y), "text-anchor": anchor, "font-size": str(size)}
    element = ElementTree.SubElement(root, "text", style)
    element.text = one_line(text)
    return element
