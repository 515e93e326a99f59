"""A target: one concrete configuration to certify, and how it is written in a case's id."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_OUTSIDE = re.compile(r"[^A-Za-z0-9._:=/-]")


@dataclass(frozen=True)
class Target:
    """Engine, attention backend, dtype, and every other axis that is not at its default, as (key, value).

    The attention backend is `none` where an engine offers no choice: that is how a profile then names its claim.
    """

    engine: str
    attention: str
    dtype: str
    axes: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        """`engine/attention/dtype(/key=value)*`, the axes sorted, other characters than those of ids encoded."""
        axes = [f"{key}={value}" for key, value in sorted(self.axes)]
        return "/".join(encoded(part) for part in (self.engine, self.attention, self.dtype, *axes))

    def __str__(self) -> str:
        return self.id


@functools.lru_cache(maxsize=4096)  # a plan of thousands of cases has few different parts
def encoded(text: str) -> str:
    """`text` with everything outside `A-Za-z0-9._:=/-` percent-encoded as UTF-8."""
    return _OUTSIDE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace")), text)


def case_id(suite: str, test: str, target: Target, model: str) -> str:
    """`suite.test[target][model]`: stable for ever, without index, timestamp or address."""
    return f"{encoded(suite)}.{encoded(test)}[{target.id}][{encoded(model)}]"
