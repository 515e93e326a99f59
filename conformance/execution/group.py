"""Cases that share a bench: one suite, target, model and set of caps; and what is loaded for them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.catalogue import Model
from conformance.execution.holder import Load
from conformance.inventory import resolve
from conformance.plan import Case, Plan
from conformance.reference.compute import claimed
from conformance.runner import LoadRequest
from conformance.suite import ConformanceSuite


@dataclass(frozen=True)
class Group:
    """Its cases, in the plan's order, all still to be run. What they share is read from the first."""

    cases: tuple[Case, ...]

    @property
    def first(self) -> Case:
        """Any of the cases, for what they share."""
        return self.cases[0]

    def suite(self) -> type[ConformanceSuite]:
        """The suite's class."""
        found: type[ConformanceSuite] = resolve(self.first.suite_path)
        return found

    def load(self, device: str, engine_class: str) -> Load:
        """What is loaded for it, and how: groups for which this is equal share one loaded model."""
        case = self.first
        return Load(
            self.request(device),
            engine_class,
            case.start,
            case.environment,
            python=case.python,
            place=(case.effective_target.id, case.model.name),
        )

    def request(self, device: str) -> LoadRequest:
        """What the runner is to load."""
        case = self.first
        options = dict(case.options)
        forms = {"padded", "unpadded"} & set(case.claim.batch)
        if len(forms) == 1:
            options["batch"] = forms.pop()
        if "batch_size" in case.settings:
            options["batch_size"] = case.settings["batch_size"]
        return LoadRequest(
            model=case.model.name,
            folder=str(case.model.folder),
            role=case.role,
            device=device,
            attention=case.effective_target.attention,
            dtype=case.effective_target.dtype,
            parameters=parameters(case.model),
            options=options,
            vision_attention="" if case.vision is None else case.vision.attention,
            axes={axis: value for axis, value in case.effective_target.axes if axis != "vision"},
            matmul=case.products.matmul,
            convolution=case.products.convolution,
        )


def groups(plan: Plan) -> list[Group]:
    """The plan's undecided cases, in groups: those that one loaded model serves together, else as they come."""
    found: dict[str, dict[str, list[Case]]] = {}
    for case in plan.cases:
        if case.verdict is None:
            loaded = asdict(Group((case,)).load(plan.device, case.effective_target.engine))
            asked = [case.suite_path, sorted(case.settings.items())]
            together = found.setdefault(json.dumps(loaded, default=str, sort_keys=True), {})
            together.setdefault(json.dumps(asked, default=str), []).append(case)
    return [Group(tuple(cases)) for together in found.values() for cases in together.values()]


def claimed_precision(case: Case) -> str:
    """The claims whose yardstick the case is judged by: attention in text and vision tower, and other products."""
    return claimed(case.precision, vision_precision(case), _reduced(case))


def judged_precision(case: Case) -> str:
    """The precision that the case as a whole is judged by: `ieee` only where nothing in it is claimed to be less."""
    is_reduced = bool(_reduced(case)) or (case.precision == "ieee" and vision_precision(case) != "ieee")
    return "tf32" if is_reduced else case.precision


def vision_precision(case: Case) -> str:
    """The vision tower's claim; that of the text model where there is no tower."""
    return case.precision if case.vision is None else case.vision.precision[case.effective_target.dtype]


def _reduced(case: Case) -> tuple[str, ...]:
    if case.needs == ("attention",):  # single kernel calls: no linear layer runs, and no convolution
        return ()
    return case.products.reduced(case.effective_target.dtype, convolves=case.vision is not None)


def parameters(model: Model) -> dict[str, Any]:
    """The model's parameters; a folder of the user's has its own token limit and pooling, not the catalogue's."""
    own = dict(model.parameters)
    if model.trust_remote_code:
        own["trust_remote_code"] = True
    if model.tier == "local":
        own.pop("max_tokens", None)
        own.update(_pooling(model.folder))
        limit = checkpoint.token_limit(model.folder)
        if limit is not None:
            own["max_tokens"] = limit
    return own


def _pooling(folder: Path) -> dict[str, str]:
    """The pooling that a sentence-transformers folder describes, where it does and it is one that runners know."""
    file = folder / "1_Pooling" / "config.json"
    try:
        described = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    modes = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
    chosen = [name for key, name in modes.items() if isinstance(described, dict) and described.get(key) is True]
    return {"pooling": chosen[0]} if len(chosen) == 1 else {}
