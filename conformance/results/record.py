"""What is recorded of one case: the result that the journal, results.json and every report are made from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from conformance.judgement import Figure, Judgement
from conformance.runner import Effective, VisionEffective
from conformance.target import Target
from conformance.verdict import Verdict

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RecordError(ValueError):
    """A recorded mapping is not what `to_json` writes; the message names the place and what was expected there."""


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
        fields = _exactly(data, [field.name for field in dataclasses.fields(CaseResult)], where)
        target = _exactly(fields["target"], ["engine", "attention", "dtype", "axes"], f"{where}, target")
        texts = {name: _text(fields[name], f"{where}, {name}") for name in _TEXT_FIELDS}
        return CaseResult(
            **texts,
            target=Target(
                **{key: _text(target[key], f"{where}, target.{key}") for key in ("engine", "attention", "dtype")},
                axes=tuple(
                    (key, _text(value, f"{where}, target.axes.{key}")) for key, value in _mapping(target["axes"], where)
                ),
            ),
            verdict=_verdict(fields["verdict"], where),
            effective=None if fields["effective"] is None else _effective(fields["effective"], where),
            judgements=tuple(_judgement(item, where) for item in _list(fields["judgements"], f"{where}, judgements")),
            quirks=tuple(_text(item, f"{where}, quirks") for item in _list(fields["quirks"], f"{where}, quirks")),
            duration_s=number_from_json(fields["duration_s"], f"{where}, duration_s"),
            attempts=_count(fields["attempts"], f"{where}, attempts"),
            rows_file=None if fields["rows_file"] is None else _text(fields["rows_file"], f"{where}, rows_file"),
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
        fields = _exactly(data, names, where)
        counts = {name: _count(fields[name], f"{where}, {name}") for name in names[:-1]}
        return Counters(**counts, peak_worker_mib=number_from_json(fields[names[-1]], f"{where}, {names[-1]}"))


def number_to_json(value: float) -> float | str:
    """JSON has no NaN and no infinity: they become "nan", "inf" and "-inf"."""
    number = float(value)
    if math.isnan(number):
        return "nan"
    return number if math.isfinite(number) else ("inf" if number > 0 else "-inf")


def number_from_json(value: object, where: str) -> float:
    """The number that `number_to_json` wrote; raises `RecordError` naming `where` for anything else."""
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise RecordError(f'{where}: {value!r} is no number; a number or one of "nan", "inf", "-inf" belongs there')


def to_plain(value: Any) -> Any:
    """`value` with JSON types only: keys as strings, tuples and sets as lists, non-finite floats as strings.

    Anything else (a path, a version, a date) becomes its text, so that facts of any origin can be recorded.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return number_to_json(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [to_plain(item) for item in value]
    return str(value)


def figure_to_json(figure: Figure) -> dict[str, Any]:
    """One figure as results.json and the rows files hold it."""
    return {
        "name": figure.name,
        "value": number_to_json(figure.value),
        "limit": None if figure.limit is None else number_to_json(figure.limit),
        "bound": figure.bound,
        "provenance": figure.provenance,
    }


def figure_from_json(data: Any, where: str) -> Figure:
    """The figure that `figure_to_json` wrote; raises `RecordError` naming `where` for anything else."""
    fields = _exactly(data, ["name", "value", "limit", "bound", "provenance"], where)
    if fields["bound"] not in ("max", "min"):
        raise RecordError(f'{where}: bound is {fields["bound"]!r}; it is "max" or "min"')
    return Figure(
        name=_text(fields["name"], f"{where}, name"),
        value=number_from_json(fields["value"], f"{where}, value"),
        limit=None if fields["limit"] is None else number_from_json(fields["limit"], f"{where}, limit"),
        bound=cast(Literal["max", "min"], fields["bound"]),
        provenance=_text(fields["provenance"], f"{where}, provenance"),
    )


def _effective_to_json(effective: Effective) -> dict[str, Any]:
    return {
        "dtype": effective.dtype,
        "attention": effective.attention,
        "kernels": {name: int(count) for name, count in sorted(effective.kernels.items())},
        "layers": int(effective.layers),
        "forwards": int(effective.forwards),
        "vision": None if effective.vision is None else _vision_to_json(effective.vision),
    }


def _effective(data: Any, where: str) -> Effective:
    where = f"{where}, effective"
    fields = _exactly(data, ["dtype", "attention", "kernels", "layers", "forwards", "vision"], where)
    return Effective(
        dtype=_text(fields["dtype"], f"{where}.dtype"),
        attention=_text(fields["attention"], f"{where}.attention"),
        kernels={key: _count(value, f"{where}.kernels.{key}") for key, value in _mapping(fields["kernels"], where)},
        layers=_count(fields["layers"], f"{where}.layers"),
        forwards=_count(fields["forwards"], f"{where}.forwards"),
        vision=None if fields["vision"] is None else _vision(fields["vision"], f"{where}.vision"),
    )


def _vision_to_json(vision: VisionEffective) -> dict[str, Any]:
    return {"attention": vision.attention, "layers": int(vision.layers), "sequences": int(vision.sequences)}


def _vision(data: Any, where: str) -> VisionEffective:
    fields = _exactly(data, ["attention", "layers", "sequences"], where)
    return VisionEffective(
        attention=_text(fields["attention"], f"{where}.attention"),
        layers=_count(fields["layers"], f"{where}.layers"),
        sequences=_count(fields["sequences"], f"{where}.sequences"),
    )


def _judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "criterion": judgement.criterion,
        "verdict": judgement.verdict.value,
        "message": judgement.message,
        "figures": [figure_to_json(figure) for figure in judgement.figures],
    }


def _judgement(data: Any, where: str) -> Judgement:
    fields = _exactly(data, ["criterion", "verdict", "message", "figures"], f"{where}, a judgement")
    where = f"{where}, judgement {fields['criterion']!r}"
    return Judgement(
        criterion=_text(fields["criterion"], where),
        verdict=_verdict(fields["verdict"], where),
        message=_text(fields["message"], f"{where}, message"),
        figures=tuple(figure_from_json(item, f"{where}, a figure") for item in _list(fields["figures"], where)),
    )


def _verdict(value: object, where: str) -> Verdict:
    try:
        return Verdict(value)
    except ValueError:
        raise RecordError(f"{where}: {value!r} is no verdict; one of {[str(v) for v in Verdict]}") from None


def _exactly(data: Any, names: Sequence[str], where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise RecordError(f"{where}: {type(data).__name__} found where a mapping with {list(names)} belongs")
    missing = [name for name in names if name not in data]
    unknown = [str(name) for name in data if name not in names]
    if missing or unknown:
        raise RecordError(f"{where}: missing {missing}, unknown {unknown}; exactly {list(names)} belong there")
    return data


def _mapping(data: object, where: str) -> list[tuple[str, Any]]:
    if not isinstance(data, Mapping):
        raise RecordError(f"{where}: {type(data).__name__} found where a mapping belongs")
    return [(str(key), value) for key, value in data.items()]


def _list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise RecordError(f"{where}: {type(data).__name__} found where a list belongs")
    return data


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{where}: {value!r} found where text belongs")
    return value


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecordError(f"{where}: {value!r} found where a count belongs")
    return value
