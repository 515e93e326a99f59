"""The features that a claim has beside its dtypes, and those that a case makes use of, under the same names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.inventory import Suite
from conformance.plan import Case
from conformance.profile import Claim, EngineClaims

FLAGS = ("scale", "softcap", "window", "deterministic", "denormals")


def claimed_features(engine: EngineClaims, claim: Claim) -> Iterator[str]:
    """What is claimed of an attention backend, and of its engine, beside dtypes and precision.

    What the profile leaves to the engine (head and page sizes that it does not list) is no feature.
    """
    yield from (f"head size {size}" for size in claim.head_sizes or ())
    if not claim.text:  # a vision tower's alone: pages, batch forms, masks and modes are the text model's
        if claim.vision:
            yield "vision"
        return
    yield from (f"page size {size}" for size in claim.page_sizes or ())
    yield from (f"batch {form}" for form in claim.batch)
    yield from (name for name in ("encoder", "vision") if getattr(claim, name))
    yield from (name for name in FLAGS if getattr(claim, name))
    if claim.masked_rows is not None:
        yield f"masked rows {claim.masked_rows}"
    yield from (f"variant {name}" for name in engine.variants)
    yield from (f"{axis}={value}" for axis, values in engine.axes.items() for value in values)


def exercised_features(case: Case, claim: Claim, suites: Mapping[str, Suite]) -> Iterator[str]:
    """What of it a case is known to use that runs on the claim, be it in the model or in the vision tower.

    A batch form is known where the test singles it out, or where tokens are generated. `suites` are the suites by
    path: they tell what their tests single out.
    """
    suite = suites.get(case.suite_path)
    tests = {} if suite is None else {test.name: test.parameters for test in suite.tests}
    parameters = {**case.model.parameters, **tests.get(case.test, {})}
    model = case.model
    if case.vision is not None and case.vision.attention == claim.attention:
        yield "vision"
        if claim.head_sizes is not None and model.vision_head_size is not None:
            yield f"head size {model.vision_head_size}"
    if case.effective_target.attention != claim.attention:
        return
    size = parameters.get("head_size") or (model.head_size if claim.head_sizes is not None else None)
    if size is not None:
        yield f"head size {size}"
    page = parameters.get("page_size", case.options.get("page_size"))
    if page is not None:
        yield f"page size {page}"
    if "batch" in parameters:
        yield f"batch {parameters['batch']}"
    if "generate" in case.needs:
        yield "batch decode"
    if suite is not None and not suite.causal:
        yield "encoder"
    if model.window is not None:
        yield "window"
    if model.softcap is not None:
        yield "softcap"
    yield from (name for name in FLAGS if parameters.get(name) is True)
    if "masked_rows" in parameters:
        yield f"masked rows {parameters['masked_rows']}"
    if "variant" in parameters:
        yield f"variant {parameters['variant']}"
    yield from (f"{axis}={value}" for axis, value in case.effective_target.axes)
