"""Results as a run would record them, for the tests of everything that is made from results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from conformance.judgement import Figure, Judgement
from conformance.results.document import build_document
from conformance.results.journal import RunHeader
from conformance.results.record import CaseResult, Counters
from conformance.runner import Effective
from conformance.target import Target, case_id
from conformance.verdict import Verdict

STARTED = "2026-11-30T10:00:00Z"
FINISHED = "2026-11-30T10:01:30Z"
SDPA = Target("transformers", "sdpa", "bfloat16")
VISION = Target("transformers", "eager", "float32", (("vision", "50%/half"),))

RATIO = Figure("pooled ratio", 1.0, 1.25, "max", "measured on eight devices")
COSINE = Figure("cosine", 0.9999)


def result(
    verdict: Verdict = Verdict.PASS,
    *,
    suite: str = "embedding",
    test: str = "test_vectors_agree",
    target: Target = SDPA,
    model: str = "qwen3-0.6",
    figures: tuple[Figure, ...] = (RATIO, COSINE),
    **changes: Any,
) -> CaseResult:
    executed = verdict.is_executed
    judged = verdict if verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNDERPOWERED) else Verdict.FAIL
    made = CaseResult(
        id=case_id(suite, test, target, model),
        suite=suite,
        test=test,
        requirement_id="EMB-010",
        statement="Each vector MUST equal the reference's within the rounding of the served dtype.",
        role="embedding.last",
        model=model,
        target=target,
        verdict=verdict,
        reason="" if verdict is Verdict.PASS else "the vectors are further off than rounding explains",
        message="16 vectors of 256 numbers were compared with the reference.",
        effective=Effective("bfloat16", "sdpa", {"aten::flash": 56}, 28, 2) if executed else None,
        judgements=(Judgement("vector.agrees", judged, "Pooled over 16 prompts.", figures),) if executed else (),
        quirks=("short-prompts",),
        started=STARTED if executed else "",
        duration_s=1.5 if executed else 0.0,
        attempts=1 if executed else 0,
        reproduce="python -m conformance run --backend cpu -k ID",
    )
    return dataclasses.replace(made, **changes)


def header(results: Sequence[CaseResult], **changes: Any) -> RunHeader:
    made = RunHeader(
        backend="cpu",
        profile_path="backends/cpu/profile.toml",
        profile_sha256="ab" * 32,
        plan_hash="cd" * 32,
        planned=tuple(one.id for one in results),
        argv=("--backend", "cpu"),
        version="0.1.0",
        started=STARTED,
        facts={"device": {"type": "cpu", "name": "a processor"}, "versions": {"torch": "2.13"}},
    )
    return dataclasses.replace(made, **changes)


def document(results: Sequence[CaseResult], **arguments: Any) -> dict[str, Any]:
    arguments = {"finished": FINISHED, "counters": Counters(0, 2, 3, 812.5), **arguments}
    return build_document(header(results), results, **arguments)


numbers = st.floats(allow_nan=True, allow_infinity=True)
texts = st.text(st.characters(codec=None), max_size=30)  # lone surrogates and controls too
figures = st.builds(
    Figure,
    name=st.text("abc ", min_size=1, max_size=5),
    value=numbers,
    limit=st.none() | numbers,
    bound=st.sampled_from(["max", "min"]),
    provenance=texts,
)
