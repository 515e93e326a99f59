"""An engine that is a server, in the plan: where it is, its one dtype and its one model."""

from __future__ import annotations

from typing import Any

import pytest
import world

from conformance.names import UsageError
from conformance.verdict import Verdict

SERVER = """
[engines.openai]
options = { url = "" }

[engines.openai.attention.none]
precision = { float32 = "ieee", bfloat16 = "fused" }
kernels = []
"""
TEXT = world.TOP_LINES.replace("[engines.vllm]", SERVER + "\n[engines.vllm]")
URL = "http://127.0.0.1:8000/v1"


def plan(**selection: Any) -> world.Plan:
    facts = {"device": {"type": "toy", "available": False}}
    return world.plan(world.profile(TEXT), facts, **{"engines": ("openai",), **selection})


def test_a_server_needs_no_device_here_and_its_url_reaches_the_engine() -> None:
    cases = plan(url=URL, dtypes=("bfloat16",)).cases
    assert cases and all(case.verdict is None and case.options["url"] == URL for case in cases)


def test_without_a_url_every_case_is_the_environments_and_names_the_option() -> None:
    for case in plan().cases:
        assert case.verdict is Verdict.ENVIRONMENT and "--url" in case.reason


@pytest.mark.parametrize(
    ("selection", "fault"),
    [
        ({"dtypes": ()}, "name it with one --dtype: float32, bfloat16, float16"),
        ({"dtypes": ("float32", "bfloat16")}, "name it with one --dtype"),
        ({"engines": ("transformers",)}, "transformers is none by toy/profile.toml: --engine openai"),
        ({"url": "127.0.0.1:8000"}, "as in http://127.0.0.1:8000/v1"),
        ({"url": "http://[::1"}, "as in http://127.0.0.1:8000/v1"),
        ({"url": "ftp://host/v1"}, "as in http://127.0.0.1:8000/v1"),
        ({"url": "http://user:swordfish@host/v1"}, "holds a name or a password"),
    ],
)
def test_what_a_server_cannot_be_asked_is_a_usage_error(selection: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        plan(**{"url": URL, "dtypes": ("float32",), **selection})
    assert fault in str(raised.value) and "swordfish" not in str(raised.value)


def test_a_role_or_a_model_that_is_named_leaves_no_other() -> None:
    server: dict[str, Any] = {"url": URL, "dtypes": ("bfloat16",)}
    assert {case.model.name for case in plan(models=(("words", None),), **server).cases} == {"small-words"}
    assert {case.model.name for case in plan(models=(("words", "big-words"),), **server).cases} == {"big-words"}
