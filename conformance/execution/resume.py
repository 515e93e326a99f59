"""Whether a run may be resumed here, and what becomes of the cases that were in flight when it died."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.names import UsageError
from conformance.plan import Plan
from conformance.results.journal import JournalContent, RunHeader
from conformance.results.redact import Redactor

DEATHS_ALLOWED = 1
"""How often a run may die while a case is in flight before that case is not started again."""

_DIGITS = 12  # of a hash, to tell it from another

_FACTS = (
    "device",
    "versions",
    "engines",
    "environments",
    "python",
    "platform",
    "isa",
    "isa_flags",
    "precision_switches",
    "torch_build",
    "stack",
)
_NO_MATTER = frozenset({"device.reason", "stack.id"})  # the id follows from what is compared
_WHOLE = frozenset(f"stack.{name}" for name in ("drivers", "firmware", "distributions", "environment", "runtime"))
"""Mappings that are known whole or not at all: what is not in one any more has changed."""
_ROUNDED = frozenset({"device.memory_gib"})  # what the kernel keeps for itself differs a little from boot to boot
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """What tells this boot of the host from every other; empty where the host does not say."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def fingerprints(plan: Plan) -> dict[str, str]:
    """For each model that no package ships, what changes when a file in its folder does: a hash of sizes and times.

    A plan's hash knows models by name; and hashing the weights takes minutes for large ones.
    """
    folders = {case.model.name: case.model.folder for case in plan.cases if case.model.tier != "embedded"}
    return {name: _fingerprint(folder) for name, folder in sorted(folders.items())}


def _fingerprint(folder: Path) -> str:
    try:
        files = sorted((file.name, file.stat()) for file in folder.iterdir() if file.is_file())
    except OSError:
        return ""
    told = [[name, status.st_size, status.st_mtime_ns] for name, status in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def what_changed(then: RunHeader, now: RunHeader) -> list[str]:
    """What makes the run that began `then` another one than would go on `now`, a sentence each; empty if nothing.

    Facts are compared as far as they are known now. Both headers are as a journal has them, redacted.
    """
    found = [
        f"{name}: {_short(before[:length])} then, {_short(after[:length])} now"
        for name, before, after, length in (
            ("version", then.version, now.version, None),
            ("backend", then.backend, now.backend, None),
            ("profile (sha256)", then.profile_sha256, now.profile_sha256, _DIGITS),
            ("plan (hash)", then.plan_hash, now.plan_hash, _DIGITS),
            ("server", _server(then.argv), _server(now.argv), None),
        )
        if before != after
    ]
    if then.planned != now.planned:
        gone, new = set(then.planned) - set(now.planned), set(now.planned) - set(then.planned)
        said = [f"{len(gone)} of then are not planned now"] * bool(gone)
        said += [f"{len(new)} of now were not planned then"] * bool(new)
        found.append(f"cases: {', '.join(said) or 'in another order'}")
    for model in now.models:
        if then.models.get(model) != now.models[model]:
            found.append(f"model {model}: files in its folder have been changed")
    for name in _FACTS:
        if name in now.facts or name == "environments":  # which needs no worker to be known
            found.extend(_fact_differences(name, then.facts.get(name), now.facts.get(name)))
    return found


def otherwise_planted(former: JournalContent, *, plants: bool) -> list[str]:
    """What makes the run another one because faults were planted in one part of it and would not be in the other."""
    if former.planted and not plants:
        return ["planted faults: some then, none now (--plant)"]
    asked = any(word in former.header.argv for word in ("--plant", "certification", "--run=certification"))
    if plants and not former.planted and not asked and any(one.attempts for one in former.kept):
        return ["planted faults: none then, some now (--plant)"]
    return []


def refuse_another_run(output: Path, then: RunHeader, now: RunHeader, also: Sequence[str] = ()) -> None:
    """Raise UsageError, with everything that changed, unless the run in `output` would go on as the same one.

    `also` are further sentences on what changed.
    """
    redact = Redactor.of_this_machine()  # both headers then tell as little as a journal does
    found = what_changed(*(RunHeader.from_json(redact(header.to_json())) for header in (then, now)))
    found += also
    if found:
        raise UsageError(
            f"{output}: the run there cannot be resumed, because it is another one than this would be:",
            f"  it was started with: {shlex.join(then.argv)}",
            f"  now: {shlex.join(now.argv)}",
            *(f"  {difference}" for difference in found),
            "resume it with those arguments on that machine, or leave --resume out: it is put aside, and all runs anew",
        )


def _server(argv: Sequence[str]) -> str:
    """Where the server is that the command line names: the verdicts of two servers are no one run."""
    for index, argument in enumerate(argv):
        option, equals, value = argument.partition("=")
        if option == "--url":
            return value if equals else " ".join(argv[index + 1 : index + 2])
    return "none"


def _fact_differences(name: str, then: Any, now: Any) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*now, *then)) if name in _WHOLE else now:
            yield from _fact_differences(f"{name}.{key}", then.get(key), now.get(key))
    elif name not in _NO_MATTER and then != now and not (name in _ROUNDED and _is_about(then, now)):
        yield f"{name}: {_short(then)} then, {_short(now)} now"


def _is_about(one: Any, other: Any) -> bool:
    return isinstance(one, (int, float)) and isinstance(other, (int, float)) and abs(one - other) <= 0.01 * one


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 64 else f"{text[:60]} ..."


def culprits(content: JournalContent, boot: str) -> dict[str, str]:
    """The cases in flight at a death that must not be started again, each with the reason; `boot` is this host's."""
    found = {}
    for case, starts in content.launches.items():
        boots = {content.starts[start].boot_id for start in starts}
        others = sorted(one for one in boots if one and boot and one != boot)
        if others:
            found[case] = (
                "the host went down while it ran, so it is not started again "
                f"(the boot id was {others[0]}, and is {boot})"
            )
        elif len(starts) > DEATHS_ALLOWED:
            found[case] = f"the run died {'twice' if len(starts) == 2 else f'{len(starts)} times'} while it ran"
    return found
