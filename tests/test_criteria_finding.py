"""The message of a judgement: what it says of figures that do not hold, and of where their limits come from."""

from __future__ import annotations

from conformance.criteria.finding import Measure, conclude
from conformance.judgement import Figure


def test_where_limits_come_from_is_said_once_for_each_source() -> None:
    far = [("pooled", "measured here"), ("worst", "measured here"), ("bias", "theory"), ("slope", ""), ("gain", "")]
    measures = [Measure(Figure(name, 9.0, 1.0, provenance=source)) for name, source in far]
    message = conclude("any", "3 numbers", measures, rows={}).message
    assert message.count("[measured here]") == message.count("[theory]") == 1 and "[]" not in message
    assert "pooled is 9, but must be at most 1 [measured here]; worst is 9, but must be at most 1; bias" in message
