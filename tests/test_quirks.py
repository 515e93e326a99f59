from __future__ import annotations

import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.quirks import Quirk, combine
from conformance.target import Target

quick = settings(max_examples=60, deadline=None)

EFFECTS = st.fixed_dictionaries(
    {},
    optional={
        "skip": st.just(True),
        "max_tokens": st.integers(1, 200),
        "top_k": st.integers(1, 200),
        "batch_size": st.integers(1, 200),
        "dtype": st.sampled_from(["float32", "bfloat16"]),
        "attention": st.sampled_from(["eager", "sdpa"]),
        "options": st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)),
        "environment": st.dictionaries(st.sampled_from("AB"), st.sampled_from("01")),
    },
)


def quirk(name: str, effect: dict[str, Any]) -> Quirk:
    day = datetime.date(2026, 1, 1)
    return Quirk(name, "accuracy", {}, effect, "r", (), "l", "o", day, day + datetime.timedelta(days=90), "u")


def quirks_of(effects: list[dict[str, Any]]) -> list[Quirk]:
    return [quirk(f"q{index}", effect) for index, effect in enumerate(effects)]


@quick
@given(st.lists(EFFECTS, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_quirks_decides_nothing_but_who_is_named(effects: list[dict[str, Any]], random: Any) -> None:
    quirks = quirks_of(effects)
    shuffled = list(quirks)
    random.shuffle(shuffled)
    one, two = combine(quirks), combine(shuffled)
    assert one.settings == two.settings
    assert (one.skip is None) is (two.skip is None)
    assert bool(one.conflicts) is bool(two.conflicts)
    if not one.conflicts:
        assert (one.dtype, one.attention, one.options, one.environment) == (
            two.dtype,
            two.attention,
            two.options,
            two.environment,
        )


@quick
@given(st.lists(EFFECTS, max_size=4))
def test_caps_only_tighten_and_top_k_only_widens(effects: list[dict[str, Any]]) -> None:
    settings = combine(quirks_of(effects)).settings
    for key, best in (("max_tokens", min), ("batch_size", min), ("top_k", max)):
        values = [effect[key] for effect in effects if key in effect]
        assert settings.get(key) == (best(values) if values else None)


@quick
@given(EFFECTS)
def test_every_effect_of_one_quirk_is_applied(effect: dict[str, Any]) -> None:
    change = combine([quirk("q", effect)])
    assert change.conflicts == ()
    assert (change.skip is not None) is effect.get("skip", False)
    target = change.retarget(Target("engine", "flash", "float16"))
    assert (target.attention, target.dtype) == (effect.get("attention", "flash"), effect.get("dtype", "float16"))
    assert (change.options, change.environment) == (effect.get("options", {}), effect.get("environment", {}))


def test_a_quirk_still_holds_on_the_day_it_expires() -> None:
    one = quirk("q", {"skip": True})
    assert not one.expired(one.expires)
    assert one.expired(one.expires + datetime.timedelta(days=1))


def test_a_contradiction_names_both_quirks_and_both_values() -> None:
    conflicts = combine([quirk("a", {"dtype": "float32"}), quirk("b", {"dtype": "float16"})]).conflicts
    assert conflicts == ("quirks 'a' and 'b' both apply and set dtype to 'float32' and to 'float16'",)
