"""Between targets: no process is left, memory is back, and the device multiplies; else nothing more is launched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zenith_site
from background import eventually
from zenith_site import Ran, misdeeds, profile

from conformance.execution import aftermath
from conformance.execution.aftermath import Aftermath, HostMemory, host_memory
from conformance.execution.holder import Load
from conformance.execution.orphans import children
from conformance.execution.pools import Pools
from conformance.runner import LoadRequest

GIB = 2**30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def run(site: Path, folder: Path, *, device: str, close: str, **more: str) -> Ran:
    """Two targets, plain and quick, of which each does a misdeed when its model is released."""
    text = profile(device=device, engine=f'options = {{ misdeeds = {{ close = "{close}" }} }}')
    files = {name: str(folder / name.lower()) for name in ("ZENITH_MARKER", "ZENITH_FREE", "ZENITH_WRONG")}
    return zenith_site.run(site, folder, text=text, **files, **more)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def by_target(done: Ran) -> dict[str, set[str]]:
    return {
        name: {verdict for test, verdict in done.verdicts.items() if test.startswith(name)}
        for name in ("plain", "quick")
    }


@pytest.mark.parametrize("device", ["cpu", "zenith"])
def test_a_process_in_a_session_of_its_own_that_outlives_its_worker_is_killed_and_told(
    site: Path, tmp_path: Path, device: str
) -> None:
    done = run(site, tmp_path, device=device, close="leave_orphan")
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    assert "outlived the worker of zenith/plain/bfloat16 tiny-colours and was killed" in " ".join(done.said.split())
    assert "outlived the worker of zenith/quick/bfloat16 tiny-colours and was killed" in " ".join(done.said.split())
    assert not is_there(int((tmp_path / "zenith_marker").read_text()))


def test_an_orphan_of_a_worker_that_crashed_is_killed(site: Path, tmp_path: Path) -> None:
    text = misdeeds(score_pairs="leave_orphan", classify="segfault")
    marker = tmp_path / "marker"
    done = zenith_site.run(site, tmp_path, text=text, ZENITH_MARKER=str(marker))
    assert "CRASH" in done.verdicts.values() and "outlived the worker" in done.said
    assert eventually(lambda: not is_there(int(marker.read_text())))


def test_memory_that_does_not_come_back_stops_the_run_with_the_figures(
    site: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    done = run(site, tmp_path, device="zenith", close="keep_memory")
    assert (done.code, by_target(done)) == (6, {"plain": {"PASS"}, "quick": {"ENVIRONMENT"}}), done.said
    reason = done.cases["quick.test_hues_agree"]["reason"]
    assert reason.startswith(
        "the zenith device is not as it was before: 3.00 GiB of the device's memory are free after"
    )
    assert "before the first target at least 14.50 of 16.00 GiB were" in reason
    assert "nothing more is launched" in done.said


def test_a_device_that_multiplies_wrongly_after_a_target_stops_the_run(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, device="zenith", close="spoil_device")
    assert (done.code, by_target(done)) == (6, {"plain": {"PASS"}, "quick": {"ENVIRONMENT"}}), done.said
    reason = done.cases["quick.test_hues_agree"]["reason"]
    assert reason.endswith(
        "a product of matrices in a fresh worker is wrong: 65536 of 65536 elements are wrong, by 1 at most"
    )


def test_a_device_that_multiplies_wrongly_from_the_start_has_nothing_launched_on_it(site: Path, tmp_path: Path) -> None:
    (tmp_path / "zenith_wrong").touch()
    done = run(site, tmp_path, device="zenith", close="spoil_device")
    assert set(done.verdicts.values()) == {"ENVIRONMENT"} and done.code == 5, done.said
    assert done.document["run"]["counters"]["models_loaded"] == 0


def test_a_run_on_a_cpu_starts_no_worker_to_look_round(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path)
    assert done.document["run"]["counters"]["workers_started"] == 3  # the facts', and one for each target
    on_device = zenith_site.run(site, tmp_path, text=profile(device="zenith"))
    assert on_device.document["run"]["counters"]["workers_started"] == 5  # and before the first and the second target


# The host's memory.


def load(target: str) -> Load:
    request = LoadRequest("toy", "/nowhere", "words", "cpu", "plain", "bfloat16")
    return Load(request, "toys:Runner", "fork", {}, (target, "toy"))


def watched(*readings: HostMemory | None) -> Aftermath:
    known = list(readings)
    with Pools() as pools:
        return Aftermath("cpu", pools, print, lambda: known.pop(0) if len(known) > 1 else known[0])


def test_memory_of_the_host_that_is_shared_and_not_given_back_is_told_with_its_figures(monkeypatch: Any) -> None:
    monkeypatch.setattr(aftermath, "SETTLE_SECONDS", 0.3)
    machine = watched(HostMemory(20 * GIB, GIB), HostMemory(12 * GIB, 9 * GIB))
    assert machine.fault(load("one")) is None
    told = machine.fault(load("two"))
    assert told is not None and told.startswith("12.00 GiB of the host's memory are available, 20.00 GiB were")
    assert "8.00 GiB more are shared memory" in told


@pytest.mark.parametrize(
    "later",
    [
        HostMemory(12 * GIB, GIB),  # another program's own
        HostMemory(20 * GIB, 9 * GIB),  # shared memory that could be had
        HostMemory(20 * GIB - 2**28, GIB + 2**28),  # within the tolerance
        None,
    ],
)
def test_memory_that_no_ended_worker_can_have_kept_stops_nothing(later: HostMemory | None) -> None:
    machine = watched(HostMemory(20 * GIB, GIB), later)
    assert machine.fault(load("one")) is None and machine.fault(load("two")) is None


def test_memory_that_comes_back_late_is_waited_for() -> None:
    ill, well = HostMemory(12 * GIB, 9 * GIB), HostMemory(20 * GIB, GIB)
    machine = watched(well, ill, ill, well)
    assert machine.fault(load("one")) is None and machine.fault(load("two")) is None


def test_the_hosts_memory_is_read_where_the_system_tells_it(tmp_path: Path) -> None:
    table = tmp_path / "meminfo"
    table.write_text("MemTotal:  100 kB\nMemAvailable:   60 kB\nHugePages_Total: 0\nShmem:  7 kB\n")
    assert host_memory(table) == HostMemory(60 * 1024, 7 * 1024)
    table.write_text("MemTotal:  100 kB\n")
    assert host_memory(table) is None and host_memory(tmp_path / "none") is None
    assert host_memory() is not None


# The parts.


def test_children_are_found_whatever_they_call_themselves(tmp_path: Path) -> None:
    for pid, name, parent in ((7, "odd) name (", 3), (8, "other", 4), (9, "x", 3)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 7 7 0")
    (tmp_path / "10").mkdir()
    (tmp_path / "self").mkdir()
    assert sorted((each.pid, each.name) for each in children(3, tmp_path)) == [(7, "odd) name ("), (9, "x")]
    assert children(3, tmp_path / "none") == []


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
def test_the_health_of_a_device_is_its_memory_and_an_exact_product(monkeypatch: Any, wrong: float) -> None:
    torch = pytest.importorskip("torch")
    from conformance.engines import device

    assert device.health("cpu") == {
        "device": {"type": "cpu", "available": True},
        "free": None,
        "total": None,
        "product": "",
    }
    right = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda one, other: right(one, other) + wrong)
    assert device.health("cpu")["product"].startswith("65536 of 65536 elements are wrong")
