"""What is recorded of one case: the result that the journal, results.json and every report are made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from conformance.judgement import Figure, Judgement
from conformance.results.plain import (
    RecordError,
    count_at,
    entries_at,
    exactly,
    list_at,
    number_from_json,
    number_to_json,
    text_at,
)
from conformance.runner import Effective, Evidence, VisionEffective
from conformance.target import Target
from conformance.verdict import Verdict


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case, with everything that a reader needs to judge it again or to reproduce it.

    The judgements' arrays are not kept here (`rows.write_rows` stores them, `rows_file` says where): a run holds
    all its results in memory.
    """

    id: str
    suite: str
    test: str
    requirement_id: str
    statement: str  # the requirement, one sentence in MUST form
    role: str
    model: str
    target: Target
    verdict: Verdict
    reason: str = ""  # one line; line breaks are folded into spaces
    message: str = ""  # the full text: what was compared, how far off, against which limit
    effective: Effective | None = None  # None where nothing ran
    judgements: tuple[Judgement, ...] = ()
    quirks: tuple[str, ...] = ()  # ids of those that were applied
    started: str = ""  # ISO 8601, UTC; empty where the case was never started
    duration_s: float = 0.0
    attempts: int = 0
    rows_file: str | None = None  # relative to the output folder
    reproduce: str = ""  # the command that runs this case alone
    log_tail: str = ""  # the last output of the worker, where it matters

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.split()))
        bare = tuple(dataclasses.replace(judgement, rows={}) for judgement in self.judgements)
        object.__setattr__(self, "judgements", bare)

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only, keys in the order of the fields; NaN and infinities are strings."""
        return {
            "id": self.id,
            "suite": self.suite,
            "test": self.test,
            "requirement_id": self.requirement_id,
            "statement": self.statement,
            "role": self.role,
            "model": self.model,
            "target": {
                "engine": self.target.engine,
                "attention": self.target.attention,
                "dtype": self.target.dtype,
                "axes": dict(sorted(self.target.axes)),
            },
            "verdict": self.verdict.value,
            "reason": self.reason,
            "message": self.message,
            "effective": None if self.effective is None else _effective_to_json(self.effective),
            "judgements": [_judgement_to_json(judgement) for judgement in self.judgements],
            "quirks": list(self.quirks),
            "started": self.started,
            "duration_s": number_to_json(self.duration_s),
            "attempts": self.attempts,
            "rows_file": self.rows_file,
            "reproduce": self.reproduce,
            "log_tail": self.log_tail,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CaseResult:
        """The result that `to_json` wrote. Raises `RecordError` for a missing, unknown or malformed entry."""
        where = f"case {data['id']!r}" if isinstance(data, Mapping) and "id" in data else "a case"
        fields = exactly(data, [field.name for field in dataclasses.fields(CaseResult)], where)
        target = exactly(fields["target"], ["engine", "attention", "dtype", "axes"], f"{where}, target")
        texts = {name: text_at(fields[name], f"{where}, {name}") for name in _TEXT_FIELDS}
        return CaseResult(
            **texts,
            target=Target(
                **{key: text_at(target[key], f"{where}, target.{key}") for key in ("engine", "attention", "dtype")},
                axes=tuple(
                    (key, text_at(value, f"{where}, target.axes.{key}"))
                    for key, value in entries_at(target["axes"], where)
                ),
            ),
            verdict=_verdict(fields["verdict"], where),
            effective=None if fields["effective"] is None else _effective(fields["effective"], where),
            judgements=tuple(_judgement(item, where) for item in list_at(fields["judgements"], f"{where}, judgements")),
            quirks=tuple(text_at(item, f"{where}, quirks") for item in list_at(fields["quirks"], f"{where}, quirks")),
            duration_s=number_from_json(fields["duration_s"], f"{where}, duration_s"),
            attempts=count_at(fields["attempts"], f"{where}, attempts"),
            rows_file=None if fields["rows_file"] is None else text_at(fields["rows_file"], f"{where}, rows_file"),
        )


_TEXT_FIELDS = (
    *("id", "suite", "test", "requirement_id", "statement", "role", "model"),
    *("reason", "message", "started", "reproduce", "log_tail"),
)


@dataclass(frozen=True)
class Counters:
    """What a run cost."""

    references_computed: int = 0  # 0 where every reference came from the store
    workers_started: int = 0
    models_loaded: int = 0
    peak_worker_mib: float = 0.0  # the largest resident memory of any worker

    def __add__(self, other: Counters) -> Counters:
        """Both together: counts add up, the peak is the higher one."""
        return Counters(
            self.references_computed + other.references_computed,
            self.workers_started + other.workers_started,
            self.models_loaded + other.models_loaded,
            max(self.peak_worker_mib, other.peak_worker_mib),
        )

    @staticmethod
    def from_json(data: Any, where: str) -> Counters:
        """The counters that `dataclasses.asdict` made plain; raises `RecordError` naming `where`."""
        names = [field.name for field in dataclasses.fields(Counters)]
        fields = exactly(data, names, where)
        counts = {name: count_at(fields[name], f"{where}, {name}") for name in names[:-1]}
        return Counters(**counts, peak_worker_mib=number_from_json(fields[names[-1]], f"{where}, {names[-1]}"))


def was_decided_afresh(result: CaseResult) -> bool:
    """Whether the verdict comes from fresh prompts, because a figure was in the grey zone."""
    return any(judgement.stage == "fresh" for judgement in result.judgements)


def figure_to_json(figure: Figure) -> dict[str, Any]:
    """One figure as results.json and the rows files hold it."""
    return {
        "name": figure.name,
        "value": number_to_json(figure.value),
        "limit": None if figure.limit is None else number_to_json(figure.limit),
        "bound": figure.bound,
        "provenance": figure.provenance,
        **{key: getattr(figure, key) for key in _OF_LIMIT if getattr(figure, key)},
    }


def figure_from_json(data: Any, where: str) -> Figure:
    """The figure that `figure_to_json` wrote; raises `RecordError` naming `where` for anything else."""
    known = ["name", "value", "limit", "bound", "provenance"]
    fields = exactly(data, [*known, *(key for key in _OF_LIMIT if isinstance(data, Mapping) and key in data)], where)
    if fields["bound"] not in ("max", "min"):
        raise RecordError(f'{where}: bound is {fields["bound"]!r}; it is "max" or "min"')
    return Figure(
        name=text_at(fields["name"], f"{where}, name"),
        value=number_from_json(fields["value"], f"{where}, value"),
        limit=None if fields["limit"] is None else number_from_json(fields["limit"], f"{where}, limit"),
        bound=cast(Literal["max", "min"], fields["bound"]),
        provenance=text_at(fields["provenance"], f"{where}, provenance"),
        limit_name=text_at(fields.get("limit_name", ""), f"{where}, limit_name"),
        standing=_standing(fields.get("standing", ""), where),
    )


_OF_LIMIT = ("limit_name", "standing")
"""Written only of figures that have them: most limits are rules, and there are thousands of figures."""


def _standing(value: object, where: str) -> Literal["measured", "provisional", ""]:
    if value not in ("measured", "provisional", ""):
        raise RecordError(f'{where}: standing is {value!r}; it is "measured" or "provisional"')
    return value


def _effective_to_json(effective: Effective) -> dict[str, Any]:
    return {
        "dtype": effective.dtype,
        "attention": effective.attention,
        "kernels": {name: int(count) for name, count in sorted(effective.kernels.items())},
        "layers": int(effective.layers),
        "forwards": int(effective.forwards),
        "vision": None if effective.vision is None else _vision_to_json(effective.vision),
        **({"evidence": effective.evidence} if effective.evidence != "counted" else {}),
        **({"cached_tokens": int(effective.cached_tokens)} if effective.cached_tokens is not None else {}),
    }


def _effective(data: Any, where: str) -> Effective:
    where = f"{where}, effective"
    known = [name for name in ("evidence", "cached_tokens") if isinstance(data, Mapping) and name in data]
    fields = exactly(data, ["dtype", "attention", "kernels", "layers", "forwards", "vision", *known], where)
    return Effective(
        dtype=text_at(fields["dtype"], f"{where}.dtype"),
        attention=text_at(fields["attention"], f"{where}.attention"),
        kernels={key: count_at(value, f"{where}.kernels.{key}") for key, value in entries_at(fields["kernels"], where)},
        layers=count_at(fields["layers"], f"{where}.layers"),
        forwards=count_at(fields["forwards"], f"{where}.forwards"),
        vision=None if fields["vision"] is None else _vision(fields["vision"], f"{where}.vision"),
        evidence=_evidence(fields.get("evidence", "counted"), where),
        cached_tokens=count_at(fields["cached_tokens"], f"{where}.cached_tokens") if "cached_tokens" in known else None,
    )


def _evidence(value: object, where: str) -> Evidence:
    if value not in get_args(Evidence):
        raise RecordError(f"{where}: evidence is {value!r}; it is one of {', '.join(get_args(Evidence))}")
    return value  # type: ignore[return-value]


def _vision_to_json(vision: VisionEffective) -> dict[str, Any]:
    return {"attention": vision.attention, "layers": int(vision.layers), "sequences": int(vision.sequences)}


def _vision(data: Any, where: str) -> VisionEffective:
    fields = exactly(data, ["attention", "layers", "sequences"], where)
    return VisionEffective(
        attention=text_at(fields["attention"], f"{where}.attention"),
        layers=count_at(fields["layers"], f"{where}.layers"),
        sequences=count_at(fields["sequences"], f"{where}.sequences"),
    )


def _judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "criterion": judgement.criterion,
        "verdict": judgement.verdict.value,
        "message": judgement.message,
        "figures": [figure_to_json(figure) for figure in judgement.figures],
        **({"stage": judgement.stage} if judgement.stage else {}),
    }


def _judgement(data: Any, where: str) -> Judgement:
    staged = ["stage"] if isinstance(data, Mapping) and "stage" in data else []
    fields = exactly(data, ["criterion", "verdict", "message", "figures", *staged], f"{where}, a judgement")
    where = f"{where}, judgement {fields['criterion']!r}"
    return Judgement(
        criterion=text_at(fields["criterion"], where),
        verdict=_verdict(fields["verdict"], where),
        message=text_at(fields["message"], f"{where}, message"),
        figures=tuple(figure_from_json(item, f"{where}, a figure") for item in list_at(fields["figures"], where)),
        stage=_stage(fields.get("stage", ""), where),
    )


def _stage(value: object, where: str) -> Literal["", "grey", "fresh"]:
    if value not in ("", "grey", "fresh"):
        raise RecordError(f'{where}: stage is {value!r}; it is "grey" or "fresh"')
    return value


def _verdict(value: object, where: str) -> Verdict:
    try:
        return Verdict(value)
    except ValueError:
        raise RecordError(f"{where}: {value!r} is no verdict; one of {[str(v) for v in Verdict]}") from None
