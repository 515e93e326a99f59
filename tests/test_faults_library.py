"""The list of faults: complete, well-formed, documented, importable without torch, and open to other packages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import checkpoint
from conformance.faults import library
from conformance.faults.fault import Injection, parse_injection
from conformance.faults.host import Host
from conformance.inventory import load_suites
from conformance.names import UsageError
from conformance.registry import Entry, Registry, discover

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINTS = ROOT / "suites" / "checkpoints"

FAMILIES = {
    *("mask", "window", "scale", "softcap", "gqa", "rope", "mrope", "positions", "pooling", "padding", "norm"),
    *("activation", "precision", "cache", "chunk", "prefix", "pictures", "template", "tokens", "truncation", "head"),
    *("sampling", "intermittent"),
}

ROLES = {
    "embedding-qwen3": "embedding.last",
    "embedding-xlmr": "embedding.encoder",
    "rerank-qwen3": "rerank.decoder",
    "rerank-xlmr": "rerank.cross_encoder",
    "classification-qwen2": "classification",
    "reward-qwen3": "reward",
    "generation-qwen3": "generation",
    "generation-mistral": "generation.window",
    "generation-gemma2": "generation.window",
    "multimodal-qwen2vl": "multimodal",
}


def test_every_family_of_the_fault_model_has_faults() -> None:
    assert {one.family for one in library.FAULTS} == FAMILIES
    assert len(library.FAULTS) >= 64


def test_ids_are_unique_and_start_with_their_family() -> None:
    assert max(Counter(one.id for one in library.FAULTS).values()) == 1
    for one in library.FAULTS:
        assert re.fullmatch(rf"{one.family}\.[a-z0-9]+(-[a-z0-9]+)*", one.id)
        assert parse_injection(one.id) == Injection(one.id)


def test_every_fault_says_what_the_engine_does_and_where_it_happened() -> None:
    place = re.compile(r"[\w.-]+/[\w.-]+(#\d+| [0-9a-f]{8})|arXiv:\d{4}\.\d{5}|[\w-]+#\d+|www\.\S+")
    for one in library.FAULTS:
        assert re.fullmatch(r"[A-Z][^|\n]+\.", one.description), one.id
        assert place.match(one.reference), one.id


def test_every_fault_names_a_suite_a_dtype_and_a_model_that_it_applies_to() -> None:
    suites = {suite.name for suite in load_suites(discover())} | {"attention"}
    for one in library.FAULTS:
        assert one.suite in suites, one.id
        assert one.dtype in ("float32", "bfloat16")
        assert one.scopes[0] == "all"
        assert 0 < one.rate <= 1
        role = "attention" if one.suite == "attention" else ROLES[one.model]
        assert role.startswith(one.suite) or one.suite == "invariance"  # which holds engines of several roles
        assert one.variant in ("", "chunked")  # what the transformers engine has
        assert one.applies(checkpoint.config(CHECKPOINTS / one.model), role) is None, one.id


@pytest.mark.parametrize(
    ("identifier", "model", "role", "reason"),
    [
        ("window.ignored", "embedding-qwen3", "embedding.last", "no sliding window"),
        ("window.everywhere", "embedding-qwen3", "embedding.last", "no sliding window"),
        ("softcap.dropped", "generation-qwen3", "generation", "no softcap"),
        ("mask.none", "embedding-xlmr", "embedding.encoder", "an encoder"),
        ("mask.encoder-causal", "embedding-qwen3", "embedding.last", "a decoder"),
        ("rope.partial", "embedding-xlmr", "embedding.encoder", "learned, not rotary"),
        ("rope.partial", "generation-qwen3", "attention", "one kernel is called, not a model"),
        ("gqa.tiled-map", "embedding-xlmr", "embedding.encoder", "a key head of its own"),
        ("pictures.channels-swapped", "generation-qwen3", "generation", "loaded as generation, not as multimodal"),
        ("window.everywhere", "generation-mistral", "generation.window", "all layers of the model have the same"),
        ("cache.next-page", "embedding-qwen3", "embedding.last", "decodes no tokens"),
        ("norm.one-dropped", "embedding-qwen3", "embedding.last", "by the weight alone"),
        ("activation.gelu-tanh", "embedding-qwen3", "embedding.last", "its activation is silu"),
    ],
)
def test_a_model_that_cannot_have_a_fault_is_told_why(identifier: str, model: str, role: str, reason: str) -> None:
    said = library.fault(identifier).applies(checkpoint.config(CHECKPOINTS / model), role)
    assert said is not None
    assert reason in said


def test_an_unknown_fault_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown fault 'mask\.causal-plus-on'; did you mean 'mask\.causal-plus-one'"):
        library.fault("mask.causal-plus-on")


def test_listing_faults_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from conformance.faults.library import faults; assert faults();"
        "print([name for name in ('torch', 'numpy', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@given(
    identifier=st.sampled_from([one.id for one in library.FAULTS]),
    scope=st.sampled_from(["all", "middle"]),
    rate=st.sampled_from([None, 1.0, 0.5, 0.01, 1e-6]),
)
@settings(max_examples=50, deadline=None)
def test_an_injection_reads_back_as_it_is_written(identifier: str, scope: str, rate: float | None) -> None:
    injection = Injection(identifier, scope, rate)  # type: ignore[arg-type]
    assert parse_injection(str(injection)) == injection


@pytest.mark.parametrize(
    "text",
    [
        *("", "@", "mask.none@", "mask.none@middle,", "mask.none@,rate=0.1", "mask.none@rate=0.1,middle", "a b"),
        *("mask.none@rate=0", "mask.none@rate=2", "mask.none@rate=-1", "mask.none@rate=nan", "mask.none@rate=1.2.3"),
        *("mask.none@rate=1e", "mask.none@rate=", "mask.none@rate=1e400", "mask..none", "Mask.none", "mask.none@all"),
        *("mask.none@middle@middle", "mask.none@rate=0.1,rate=0.2", "mask.none@rate=1e-999", "\x1b[2Jmask"),
    ],
)
def test_what_is_no_injection_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_injection(text)
    assert "is no injection; it must look like ID, ID@middle or ID@middle,rate=0.01" in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_another_package_adds_faults_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(library.FAULTS[0], id="acme.stuck-lane", family="acme")
    found = library.collect(_declaring(monkeypatch, [own]))
    assert found["acme.stuck-lane"] is own
    assert set(found) > {one.id for one in library.FAULTS}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ([replace(library.FAULTS[0])], "the id 'mask.causal-plus-one' is taken; start it with your own name"),
        (
            [replace(library.FAULTS[0], id="Acme_lane")],
            "the id 'Acme_lane' must be of small letters and digits, as in family.what-is-wrong",
        ),
        (["mask.none"], "FAULTS holds 'mask.none', which is no conformance.faults.fault.Fault"),
        ([replace(library.FAULTS[0], id="\x1b[31m")], "must be of small letters and digits"),
        ([replace(library.FAULTS[0], id="acme.stuck", scopes=())], "must have one or both of 'all' and 'middle'"),
        ([replace(library.FAULTS[0], id="acme.stuck", rate=0.0)], "above 0 and at most 1"),
        (3, "must be a module with FAULTS, a sequence of faults"),
        (None, "must be a module with FAULTS, a sequence of faults"),
    ],
)
def test_faults_that_are_declared_wrongly_are_named(
    monkeypatch: pytest.MonkeyPatch, declared: object, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        library.collect(_declaring(monkeypatch, declared))
    assert "faults of acme-conformance (acme_faults)" in str(raised.value)


def test_a_module_of_faults_that_is_not_there_is_named() -> None:
    registry = replace(discover(), faults={"acme": Entry("acme", "no_such_faults", "acme-conformance")})
    with pytest.raises(
        UsageError, match=r"faults of acme-conformance \(no_such_faults\): ModuleNotFoundError: No module"
    ):
        library.collect(registry)


def test_a_module_of_faults_that_ends_the_process_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "leaving_faults.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = replace(discover(), faults={"acme": Entry("acme", "leaving_faults", "acme-conformance")})
    with pytest.raises(UsageError, match=r"\(leaving_faults\): SystemExit: 0"):
        library.collect(registry)


def test_the_table_in_the_docs_is_that_of_the_library() -> None:
    written = (ROOT / "docs" / "faults.md").read_text("utf-8")
    table = library.table()
    assert table in written, f"replace the table of docs/faults.md by:\n{table}"


def _declaring(monkeypatch: pytest.MonkeyPatch, declared: object) -> Registry:
    module = ModuleType("acme_faults")
    if declared is not None:
        module.FAULTS = declared  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_faults", module)
    entries = {**discover().faults, "acme": Entry("acme", "acme_faults", "acme-conformance")}
    return replace(discover(), faults=entries)


@pytest.mark.parametrize(("text", "hits"), [("x", 0), ("x@rate=1", 50), ("x@middle,rate=1", 50)])
def test_a_rate_of_one_takes_the_place_of_the_faults_own(text: str, hits: int) -> None:
    host = Host(None, parse_injection(text), rate=1e-9)  # type: ignore[arg-type]
    assert sum(host.hits() for _ in range(50)) == hits
