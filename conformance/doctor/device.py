"""Is the device there, may this user open it, and if not, why not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from conformance.doctor.asking import NoAnswer
from conformance.doctor.finding import Finding, ok, problem, warning
from conformance.profile import Driver
from conformance.results.printable import one_line


def _may_open(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True)
class System:
    """What of this machine is looked at without a driver."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    may_open: Callable[[Path], bool] = _may_open


def usable(answer: Mapping[str, Any] | NoAnswer) -> TypeGuard[Mapping[str, Any]]:
    """Whether there is a device to compute on."""
    return (
        not isinstance(answer, NoAnswer)
        and "failed" not in answer
        and answer["missing"] is None
        and answer.get("count", 1) > 0
    )


def check(kind: str, answer: Mapping[str, Any] | NoAnswer, driver: Driver, system: System) -> Iterator[Finding]:
    """What the worker's answer to `probe.device` means, and every cause that can be seen from here."""
    if isinstance(answer, NoAnswer):
        no_torch = "No module named 'torch'" in answer.reason
        broken = "the driver or torch itself is broken; another version of one of them, or a restart, may help"
        yield problem(
            "device",
            f"torch's {kind} device could not be asked: {one_line(answer.reason, 1500)}",
            f"install torch{'' if kind == 'cpu' else f': {_torch_for(kind, driver)}'}"
            if no_torch
            else _see(driver, broken),
        )
        yield from causes(kind, {}, driver, system)
        return
    if "failed" in answer:
        asked, error = answer["failed"]["asked"], answer["failed"]["error"]
        said = "" if asked == "missing" else f"torch {answer['torch']} says that {kind} is available, but "
        yield problem(
            "device",
            f"{said}asking for its {'availability' if asked == 'missing' else asked} raised {one_line(error, 500)}",
            _see(driver, "driver and torch build do not fit each other: update one of them"),
        )
        yield from causes(kind, answer, driver, system)
        return
    if answer["missing"] is not None:
        told = "".join(f"; torch warns: {one_line(text, 300)}" for text in answer["warnings"][:3])
        found = list(causes(kind, answer, driver, system))
        if not answer.get("known", True):
            advice = _torch_for(kind, driver)
            if driver == Driver():
                advice += "; [driver] in the profile can say where its driver shows"
        else:
            differ = "torch has the device, the driver is there and nothing hides it: their versions differ"
            advice = "see the causes below" if found else _see(driver, differ)
        yield problem("device", f"{one_line(answer['missing'])}{told}", advice)
        yield from found
        return
    if kind == "cpu":
        yield ok("device", f"cpu, {answer['threads']} threads, {answer['isa']}, torch {answer['torch']}")
    elif answer["count"] < 1:
        yield problem(
            "device", f"torch says that {kind} is available, and counts no device", _see(driver, "unhide one")
        )
        yield from causes(kind, answer, driver, system)
    else:
        yield ok("device", f"{kind}:0 of {answer['count']}, {one_line(answer['name'])}, torch {answer['torch']}")
    for text in answer["warnings"][:3]:
        yield warning("device", f"torch warns: {one_line(text, 400)}", "heed it before a long run")


def causes(kind: str, answer: Mapping[str, Any], driver: Driver, system: System) -> Iterator[Finding]:
    """Why a device may not be there. Nothing is said of what the profile does not describe under [driver]."""
    build = answer.get("build", {})
    if answer.get("known", True) and driver.builds and build and not any(build.get(name) for name in driver.builds):
        looked = " and ".join(f"torch.version.{name}" for name in driver.builds)
        yield problem(
            "device",
            f"torch {answer['torch']} is a build without {kind}: {looked} is None",
            _torch_for(kind, driver),
        )
    nodes = {pattern: sorted(system.root.glob(pattern.lstrip("/"))) for pattern in driver.nodes}
    absent = [pattern for pattern, found in nodes.items() if not found]
    if absent:
        yield problem(
            "device", f"no driver node: nothing is called {' or '.join(absent)}", _see(driver, driver.missing)
        )
    for node in (each for found in nodes.values() for each in found):
        if not system.may_open(node):
            yield _denied(node)
    for name in driver.masks:
        if name in system.environment:
            value = system.environment[name]
            yield warning(
                "device",
                f"{name}={one_line(value, 80)!r} chooses among the devices, and may hide all of them",
                f"unset {name}, or name a device that is there",
            )


def _denied(node: Path) -> Finding:
    import grp

    status = node.stat()
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    join = (
        f"add the user to the group {group} (usermod -aG {group} USER, then log in again)"
        if status.st_gid != 0
        else "install the driver's udev rules, which give the node to a group of users (render or video)"
    )
    return problem(
        "device",
        f"{node} may not be opened by this user (it is {stat.filemode(status.st_mode)}, group {group})",
        f"{join}; in a container, pass --device {node} --group-add {status.st_gid}",
    )


def _torch_for(kind: str, driver: Driver) -> str:
    """How to come by a torch that has such devices: the profile knows, and where it says nothing, its vendor does."""
    return driver.torch or (
        f"install the build of torch, or the torch extension, that the vendor offers for {kind}, and see that the "
        "engine's adapter imports the extension; or correct `device` under [backend] in the profile"
    )


def _see(driver: Driver, text: str) -> str:
    advice = text or "install the device's driver, and in a container pass the device into it"
    return f"{advice}; `{driver.shows}` shows what the driver sees" if driver.shows else advice
