"""Is a results.json one that this version may have written? Its schema, and what must follow from its cases."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.audit import SHOWN, audit_exit_code
from conformance.judgement import decisive
from conformance.results import strict_json
from conformance.results.comparison import Comparison, verdicts
from conformance.results.document import SCHEMA_VERSION, exit_code, summarise
from conformance.results.plain import RecordError
from conformance.results.planted import is_void, planted_of, void_reasons
from conformance.results.printable import one_line
from conformance.results.record import CaseResult
from conformance.verdict import Verdict


class DocumentError(ValueError):
    """A results.json is not what this version writes; the message lists every fault."""


@functools.lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The published JSON schema (draft 2020-12) of results.json."""
    text = importlib.resources.files(__package__).joinpath("results.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document_faults(document: Any) -> list[str]:
    """Every fault of a results.json, as "where: what is wrong"; empty for one that this version may have written.

    Beyond the schema: ids are unique, the summary is that of the cases, the exit code follows from the verdicts.
    """
    import jsonschema  # a tenth of a second that only a reader of results pays

    validator = jsonschema.Draft202012Validator(schema())
    # A schema's message quotes the value, which may be a whole document.
    faults = [f"{error.json_path}: {one_line(error.message, 300)}" for error in validator.iter_errors(document)]
    if faults:
        return faults
    try:
        results = [CaseResult.from_json(case) for case in document["cases"]]
    except RecordError as error:
        return [f"$.cases: {error}"]
    run = document["run"]
    twice = [case for case, count in Counter(result.id for result in results).items() if count > 1]
    if twice:
        faults.append(f"$.cases: {twice} occur more than once; ids are unique")
    if summarise(results) != document["summary"]:
        faults.append("$.summary: differs from what the cases add up to")
    expected = exit_code(results, interrupted=run["interrupted"], void=is_void(document))
    if expected != run["exit_code"]:
        faults.append(f"$.run.exit_code: is {run['exit_code']}; the verdicts make it {expected}")
    if len(results) > run["planned"] or (len(results) < run["planned"] and not run["interrupted"]):
        faults.append(f"$.run.planned: is {run['planned']}, but there are {len(results)} cases")
    faults += _baseline_faults(document, results)
    if "planted" in document and document["planted"]["void"] != void_reasons(planted_of(document)):
        faults.append("$.planted.void: is not what became of the planted faults")
    faults += _audit_faults(document.get("audit"), {result.id for result in results})
    for result in results:
        against = [one.criterion for one in decisive(result.judgements) if one.verdict is not Verdict.PASS]
        if result.verdict is Verdict.PASS and against:
            faults.append(f"$.cases[{result.id!r}]: is PASS, but {against} did not pass")
        for judgement in result.judgements:
            broken = [figure.name for figure in judgement.figures if not figure.holds]
            if broken and judgement.verdict is Verdict.PASS:
                faults.append(f"$.cases[{result.id!r}]: {judgement.criterion} passes, but {broken} exceed their limits")
    return faults


def _audit_faults(block: Mapping[str, Any] | None, cases: Collection[str]) -> list[str]:
    if block is None:
        return []
    faults, expected = [], audit_exit_code(block["claims"], block["mismatches"])
    if block["exit_code"] != expected:
        faults.append(f"$.audit.exit_code: is {block['exit_code']}; claims and mismatches make it {expected}")
    for index, claim in enumerate(block["claims"]):
        if claim["passed"] > claim["executed"] or (claim["status"] == SHOWN and not claim["passed"]):
            faults.append(
                f"$.audit.claims[{index}]: {claim['status']} with {claim['passed']} PASS of {claim['executed']}"
            )
    for kind in ("mismatches", "under_claimed"):
        named = {case for entry in block[kind] for case in entry["cases"]}
        faults += [f"$.audit.{kind}: names {case!r}, which is no case" for case in sorted(named - set(cases))]
    return faults


def _baseline_faults(document: Mapping[str, Any], results: Sequence[CaseResult]) -> list[str]:
    if "baseline" not in document:
        return []
    changes, faults = Comparison.from_json(document["baseline"]), []
    if not changes.is_of(verdicts(document)):
        faults.append("$.baseline: its changes are not those to the cases' verdicts")
    known = {change.case for change in changes.known}
    expected = exit_code(results, interrupted=document["run"]["interrupted"], known=known, void=is_void(document))
    if document["baseline"]["exit_code"] != expected:
        found = document["baseline"]["exit_code"]
        faults.append(f"$.baseline.exit_code: is {found}; verdicts and known failures make it {expected}")
    return faults


def read_document(path: Path | str) -> dict[str, Any]:
    """Read and check a results.json; raises `DocumentError` listing every fault, OSError where it cannot be read."""
    return parse_document(Path(path).read_bytes(), str(path))


def parse_document(data: bytes, name: str) -> dict[str, Any]:
    """The checked content of a results.json called `name`; raises `DocumentError` listing every fault."""
    try:
        document = strict_json.loads(data)
    except ValueError as error:
        raise DocumentError(
            f"{name}: no JSON in UTF-8: {error}; the file is damaged, cut off, or no results.json"
        ) from error
    if not isinstance(document, dict) or "schema_version" not in document:
        raise DocumentError(f"{name}: no results.json: a mapping with a schema_version belongs there")
    if document["schema_version"] != SCHEMA_VERSION:
        raise DocumentError(
            f"{name}: $.schema_version: is {one_line(repr(document['schema_version']), 40)}, but this version of "
            f"conformance reads {SCHEMA_VERSION}; the file was written by conformance "
            f"{one_line(str(document.get('conformance_version', '?')), 40)}"
        )
    faults = document_faults(document)
    if faults:
        raise DocumentError("\n".join(f"{name}: {fault}" for fault in faults))
    return document
