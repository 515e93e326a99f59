"""Engines in an environment of their own: which interpreter has them, and what is installed there.

An engine's worker can run in another interpreter than the suite's. It needs the standard library, numpy and what the
engine and its adapter need, and none of this package's own requirements: this package is loaded from its files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.names import UsageError, printable, unknown
from conformance.profile import EngineClaims, Profile

OLDEST_PYTHON = (3, 10)
NEEDED = "numpy"
"""The only distribution that a worker needs beside its engine's."""

PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that decide what an interpreter finds; told among the facts where they are set."""

_SECONDS = 60.0
_PROBE = """\
import json, sys
import importlib.metadata, os
names, variables = json.loads(sys.argv[1])
versions = {}
for name in names:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        versions[name] = None
print()
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "versions": versions,
    "environment": {name: os.environ[name] for name in variables if name in os.environ},
}))
"""


@dataclass(frozen=True)
class Given:
    """`--engine-python [ENGINE=]PATH`, as it was typed. `engine` is empty where it was left out."""

    engine: str
    path: str

    @classmethod
    def read(cls, text: str) -> Given:
        """What stands before the first `=` is an engine, unless it looks like a path."""
        engine, equals, path = text.partition("=")
        return cls(engine, path) if equals and "/" not in engine else cls("", text)


def with_interpreters(profile: Profile, given: Sequence[str], chosen: Sequence[str]) -> Profile:
    """The profile with the interpreters of `--engine-python` for the `chosen` engines, and all of them found.

    Raises UsageError, with every fault, where one that was given names no interpreter, or nobody can tell whose it is.
    One that the profile names and this machine lacks is left as it is written: its engine is not available here.
    """
    faults: list[str] = []
    named: dict[str, str] = {}
    for each in map(Given.read, given):
        engines = [each.engine] if each.engine else list(chosen)
        written = f"--engine-python {printable(f'{each.engine}=' if each.engine else '')}{printable(each.path)}"
        if each.engine and each.engine not in profile.engines:
            faults.append(f"{written}: {unknown('engine', each.engine, profile.engines)}")
        elif each.engine and each.engine not in chosen:
            faults.append(f"{written}: {each.engine} is not selected; add --engine {each.engine}")
        elif len(engines) != 1:
            which = " or ".join(f"--engine-python {engine}={each.path}" for engine in engines)
            faults.append(f"{written}: {len(engines)} engines are selected; say whose it is: {printable(which)}")
        elif engines[0] in named:
            faults.append(f"{written}: {engines[0]} has the interpreter {printable(named[engines[0]])} already")
        else:
            named[engines[0]] = each.path
            try:
                named[engines[0]] = interpreter(each.path, Path.cwd())
            except LookupError as error:
                faults.append(f"{written}: {error.args[0]}")
    if faults:
        raise UsageError(*faults)
    return replace(
        profile, engines={name: _with_python(each, named, profile) for name, each in profile.engines.items()}
    )


def _with_python(engine: EngineClaims, named: Mapping[str, str], profile: Profile) -> EngineClaims:
    if engine.name in named:
        return replace(engine, python=named[engine.name])
    if not engine.python:
        return engine
    try:
        return replace(engine, python=interpreter(engine.python, profile.path.parent))
    except LookupError:
        return engine


def interpreter(written: str, folder: Path) -> str:
    """The interpreter that a path (from `folder`), or a name on PATH, names. Links are kept: an environment is one.

    Raises LookupError with what is there instead, and what would be right.
    """
    path = Path(written).expanduser()
    if "/" not in written and written not in (".", "..", "~"):
        found = shutil.which(written)
        if found is not None:
            return str(Path(found).absolute())
        if not (folder / path).exists():
            raise LookupError(f"no program on PATH has this name; give the path of an interpreter, e.g. {_EXAMPLE}")
    path = Path(os.path.normpath(folder.absolute() / path))
    if path.is_dir():
        inside = path / "bin" / "python"
        hint = f"did you mean {inside}?" if inside.exists() else f"give the path of an interpreter, e.g. {_EXAMPLE}"
        raise LookupError(f"{printable(str(path))} is a folder; {printable(hint)}")
    if not path.exists():
        raise LookupError(f"there is no {printable(str(path))}; give the path of an interpreter, e.g. {_EXAMPLE}")
    if not os.access(path, os.X_OK):
        raise LookupError(f"{printable(str(path))} cannot be executed; give the path of an interpreter")
    return str(path)


_EXAMPLE = "/opt/engine/bin/python"


def environment_facts(engine: EngineClaims, distributions: Iterable[str], folder: Path) -> dict[str, Any]:
    """What is known of an engine's own interpreter: `python` (its path), `version`, `prefix`, `versions` of the
    distributions, and of the `environment` what the profile sets and what decides what is found.

    `fault` says why no worker can run there, if so, and `versions` may then be missing. Nothing is imported there.
    """
    facts: dict[str, Any] = {"python": engine.python}
    try:
        python = interpreter(engine.python, folder)
    except LookupError as error:
        return {**facts, "fault": str(error.args[0])}
    asked = json.dumps([sorted({NEEDED, *distributions}), sorted({*engine.environment, *PASSED_ON})])
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, asked],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **engine.environment},
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, ValueError) as error:
        return {**facts, "fault": f"{python} cannot be started: {getattr(error, 'strerror', None) or error}"}
    except subprocess.TimeoutExpired:
        return {**facts, "fault": f"{python} has not answered within {_SECONDS:g} s; is it a Python interpreter?"}
    answer = _answer(done.stdout)
    if answer is None:
        lines = printable(done.stderr.decode("utf-8", "replace")).strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        return {
            **facts,
            "fault": f"{python} does not answer like a Python interpreter (exit code {done.returncode}{said})",
        }
    facts |= answer
    version = tuple(int(part) for part in str(answer["version"]).split(".")[:2])
    if version < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        facts["fault"] = f"{python} is Python {answer['version']}; {oldest} or newer is needed"
    elif answer["versions"].get(NEEDED) is None:
        facts["fault"] = f"{python} has no {NEEDED}, which a worker needs; `{python} -m pip install {NEEDED}`"
    return facts


def _answer(output: bytes) -> dict[str, Any] | None:
    """The last line as the probe writes it; what else a start-up file printed does not matter."""
    try:
        found = json.loads(output.decode("utf-8").strip().splitlines()[-1])
        is_sound = (
            set(found) == {"version", "prefix", "versions", "environment"}
            and len([int(part) for part in found["version"].split(".")]) == 3
            and all(isinstance(found[key], dict) for key in ("versions", "environment"))
        )
    except (IndexError, ValueError, TypeError, AttributeError):
        return None
    return found if is_sound else None


def environment_faults(environments: Mapping[str, Any]) -> list[str]:
    """What is wrong with environments that a file of facts describes, a sentence each."""
    faults = []
    for engine, known in environments.items():
        where = f"environments.{printable(engine)}"
        if not isinstance(known, dict) or not isinstance(known.get("versions", {}), dict):
            faults.append(f"{where} should be an object, whose versions are one of distribution and version")
            continue
        if not isinstance(known.get("python"), str):
            faults.append(f"{where}.python should be the path of an interpreter")
        faults += [
            f"{where}.versions.{printable(name)} is {version!r}, but should be text, or null for not installed"
            for name, version in known.get("versions", {}).items()
            if not (version is None or isinstance(version, str))
        ]
    return faults


def versions_for(facts: Mapping[str, Any], engine: str) -> Mapping[str, Any]:
    """The versions that are installed where the engine runs: of its own interpreter, or else of the suite's."""
    own = facts.get("environments", {}).get(engine)
    found: Mapping[str, Any] = facts.get("versions", {}) if own is None else own.get("versions", {})
    return found
