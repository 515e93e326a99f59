"""What surrounds a run: memory, disk, variables, models, locks. No torch, no worker."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import world
import zenith_site
from safetensors.numpy import save_file

from conformance.catalogue import Catalogue, Model
from conformance.doctor import disk, duration, environment, lock, memory, models
from conformance.doctor.finding import Finding, Status, exit_code, problem
from conformance.estimate import Estimate, Part
from conformance.execution.deadline import Deadline
from conformance.execution.lock import device_lock

GIB = 2**30


def by_status(findings: Any) -> dict[Status, list[Finding]]:
    found: dict[Status, list[Finding]] = {status: [] for status in Status}
    for each in findings:
        found[each.status].append(each)
    return found


def test_what_is_not_ok_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="should say what to do"):
        problem("disk", "it is full", "")


def test_wrong_numbers_weigh_more_than_what_cannot_run_and_warnings_nothing() -> None:
    lack, wrong = problem("device", "gone", "plug it in"), problem("matmul", "1 != 2", "stop", wrong_numbers=True)
    warned = Finding("disk", Status.WARNING, "nearly full", "free some")
    assert [exit_code(each) for each in ([], [warned], [lack, warned], [lack, wrong])] == [0, 0, 6, 1]


class TestMemory:
    def folder(self, tmp_path: Path) -> Path:
        tensors = {"w": np.zeros((1000, 1000), np.float16), "ids": np.zeros(10, np.int64)}
        tmp_path.mkdir(exist_ok=True)
        save_file(tensors, str(tmp_path / "model.safetensors"))
        return tmp_path

    def test_weights_are_counted_in_the_dtype_that_is_served(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        assert memory.weight_bytes(folder, "float16") == 2_000_080
        assert memory.weight_bytes(folder, "float64") == 8_000_080
        assert memory.needed_bytes(folder, "float32") > 1.2 * 4_000_000 + GIB - 1

    def test_the_largest_of_the_plan_counts_and_a_broken_folder_is_left_to_the_models(self, tmp_path: Path) -> None:
        whole = Model("whole", ("words",), "embedded", self.folder(tmp_path / "whole"))
        broken = Model("broken", ("words",), "embedded", tmp_path / "broken")
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "model.safetensors").write_bytes(b"\xff" * 100)
        cases = world.plan(catalogue=Catalogue((whole, broken))).cases
        assert memory.largest(cases)[1] == "whole in float32"
        assert memory.largest(cases, "float64")[1] == "whole in float64"
        assert memory.largest(()) == (0, "")

    @pytest.mark.parametrize(
        ("free", "total", "status", "words"),
        [
            (15 * GIB, 16 * GIB, Status.OK, "are free, needed are 8.0 GiB for big in float32"),
            (None, 16 * GIB, Status.OK, "the device does not say"),
            (4 * GIB, 16 * GIB, Status.PROBLEM, "4.0 GiB of 16.0 GiB are free"),
            (4 * GIB, 4 * GIB, Status.PROBLEM, "4.0 GiB in all"),
        ],
    )
    def test_the_device_must_hold_the_largest_model(
        self, free: int | None, total: int, status: Status, words: str
    ) -> None:
        found = next(memory.check_device("xpu", free, total, (8 * GIB, "big in float32")))
        assert found.status is status and words in found.found

    def test_memory_that_others_use_is_a_warning(self) -> None:
        found = list(memory.check_device("xpu", 12 * GIB, 16 * GIB, (GIB, "small")))
        assert [each.status for each in found] == [Status.OK, Status.WARNING]
        assert "4.0 GiB of 16.0 GiB are in use by others" in found[1].found

    @pytest.mark.parametrize(
        ("free", "status"), [(9 * GIB, Status.OK), (7 * GIB, Status.PROBLEM), (None, Status.WARNING)]
    )
    def test_the_host_must_hold_it_too(self, free: int | None, status: Status) -> None:
        assert memory.check_host(free, (8 * GIB, "big in float64")).status is status

    def test_a_containers_limit_counts_and_so_does_that_of_a_group_above(self, tmp_path: Path) -> None:
        def write(name: str, text: str) -> None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

        assert memory.free_host_bytes(tmp_path) is None
        write("proc/meminfo", f"MemTotal: {64 * 2**20} kB\nMemAvailable: {32 * 2**20} kB\n")
        assert memory.free_host_bytes(tmp_path) == 32 * GIB
        write("proc/self/cgroup", "0::/pod/job\n")
        write("sys/fs/cgroup/pod/job/memory.max", "max\n")
        write("sys/fs/cgroup/pod/memory.max", f"{8 * GIB}\n")
        write("sys/fs/cgroup/pod/memory.current", f"{5 * GIB}\n")
        assert memory.free_host_bytes(tmp_path) == 3 * GIB
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{2 * GIB}\n")
        write("sys/fs/cgroup/memory/memory.usage_in_bytes", f"{GIB}\n")
        assert memory.free_host_bytes(tmp_path) == GIB


class TestDisk:
    def place(self, folder: Path, needs: int = 1000, might: int = 2000) -> disk.Place:
        return disk.Place("output", folder, needs, might, "--output DIR")

    @pytest.mark.parametrize(
        ("free", "status"), [(3000, Status.OK), (1500, Status.WARNING), (999, Status.PROBLEM), (0, Status.PROBLEM)]
    )
    def test_space_is_held_against_what_a_run_writes(self, tmp_path: Path, free: int, status: Status) -> None:
        found = disk.check(self.place(tmp_path / "not" / "yet"), lambda folder: free)
        assert found.status is status and found.figures["free_bytes"] == free
        assert not list(tmp_path.iterdir()), "the folder is not made"

    def test_a_file_system_without_a_free_inode_is_full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.statvfs(tmp_path)
        assert disk.free_bytes(tmp_path) > 0
        full = os.statvfs_result((*tuple(real)[:5], 1000, 0, 0, *tuple(real)[8:]))
        monkeypatch.setattr(os, "statvfs", lambda folder: full)
        assert disk.free_bytes(tmp_path) == 0

    def test_a_part_of_the_path_that_is_a_file_is_a_problem(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert "is not a folder" in disk.check(self.place(tmp_path / "file" / "out")).found

    def test_a_folder_that_cannot_be_written_is_a_problem(self) -> None:
        found = disk.check(self.place(Path("/proc/out")))
        assert found.status is Status.PROBLEM and "--output" in found.advice

    def test_references_to_compute_need_room_in_the_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path))
        assert [each.name for each in disk.places(tmp_path, 10, 0)] == ["output"]
        cache = disk.places(tmp_path, 10, 3)[1]
        assert cache.folder == tmp_path / "references" and cache.needs == 3 * disk.REFERENCE_BYTES

    def test_no_folder_for_temporary_files_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none() -> str:
            raise FileNotFoundError(2, "No usable temporary directory found")

        monkeypatch.setattr("tempfile.gettempdir", none)
        found = disk.check_temporary()
        assert found.status is Status.PROBLEM and "TMPDIR" in found.advice

    def test_a_folder_that_another_run_writes_to_is_a_problem(self, tmp_path: Path) -> None:
        assert not list(disk.check_output(tmp_path))
        with (tmp_path / ".lock").open("w") as file:
            file.write("4711\n")
            file.flush()
            assert not list(disk.check_output(tmp_path))
            fcntl.flock(file, fcntl.LOCK_EX)
            (found,) = disk.check_output(tmp_path)
        assert "process 4711" in found.found and found.status is Status.PROBLEM

    def test_a_results_file_that_no_run_wrote_is_a_problem(self, tmp_path: Path) -> None:
        (tmp_path / "results.json").touch()
        (found,) = disk.check_output(tmp_path)
        assert "results.json" in found.found
        (tmp_path / "journal.jsonl").touch()
        assert not list(disk.check_output(tmp_path))


class TestEnvironment:
    def check(self, **variables: str) -> dict[Status, list[Finding]]:
        return by_status(environment.check(variables, {}))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("NVIDIA_TF32_OVERRIDE", "1"),
            ("ONEDNN_DEFAULT_FPMATH_MODE", "bf16"),
            ("PYTORCH_ENABLE_XPU_FALLBACK", "1"),
            ("PYTORCH_XPU_FALLBACK_OP", "addmm"),
        ],
    )
    def test_a_variable_that_makes_results_worthless_is_a_warning(self, name: str, value: str) -> None:
        (found,) = self.check(**{name: value})[Status.WARNING]
        assert f"{name}={value}" in found.found and "unset" in found.advice

    def test_one_that_changes_kernels_is_named_and_others_are_not(self) -> None:
        found = self.check(
            OMP_NUM_THREADS="2",
            CUBLAS_WORKSPACE_CONFIG=":4096:8",
            PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
            NVIDIA_TF32_OVERRIDE="0",
            ONEDNN_DEFAULT_FPMATH_MODE="STRICT",
            HF_HUB_OFFLINE="1",
            HOME="/root",
        )
        assert not found[Status.WARNING]
        text = found[Status.OK][0].found
        assert "OMP_NUM_THREADS=2" in text and "CUBLAS_WORKSPACE_CONFIG=:4096:8" in text and "HOME" not in text
        assert found[Status.OK][0].figures["variables"] == 6

    def test_a_secret_is_never_shown(self) -> None:
        text = self.check(HF_TOKEN="hf_abc", TOKENIZERS_PARALLELISM="false")[Status.OK][0].found
        assert "hf_abc" not in text and "HF_TOKEN=(hidden)" in text and "TOKENIZERS_PARALLELISM=false" in text

    def test_what_the_profile_sets_counts_more_than_the_shells(self) -> None:
        found = list(environment.check({"NVIDIA_TF32_OVERRIDE": "0"}, {"NVIDIA_TF32_OVERRIDE": "1"}))
        assert "NVIDIA_TF32_OVERRIDE=1 (set by the profile)" in found[0].found

    def test_a_value_cannot_steer_the_terminal(self) -> None:
        assert "\x1b" not in self.check(TORCH_LOGS="\x1b[2J+all\n")[Status.OK][0].found


class TestModels:
    def plan(self, tmp_path: Path, tier: str = "embedded") -> Any:
        zenith_site.write_model(tmp_path / "words")
        model = Model("words", ("words",), tier, tmp_path / "words")
        selection = {"models": (("words", "words"),)} if tier == "local" else {}
        return world.plan(catalogue=Catalogue((model,)), **selection).cases

    def test_whole_models_are_counted(self, tmp_path: Path) -> None:
        (found,) = models.check(self.plan(tmp_path))
        assert found.status is Status.OK and found.found.startswith("1 of 1")

    @pytest.mark.parametrize(("tier", "advice"), [("embedded", "install the package again"), ("local", "--model")])
    def test_a_truncated_weights_file_is_a_problem(self, tmp_path: Path, tier: str, advice: str) -> None:
        cases = self.plan(tmp_path, tier)
        file = tmp_path / "words" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-4])
        (found,) = models.check(cases)
        assert "truncated" in found.found and advice in found.advice and exit_code([found]) == 6

    def test_missing_weights_and_folders_are_problems(self, tmp_path: Path) -> None:
        cases = self.plan(tmp_path)
        (tmp_path / "words" / "model.safetensors").unlink()
        assert "no weights" in next(models.check(cases)).found
        (tmp_path / "words" / "config.json").unlink()
        assert len(list(models.check(cases))) == 2, "every fault at once"
        assert "no such folder" in next(models.check(world.plan().cases)).found

    def test_head_sizes_are_the_models_and_their_towers(self, tmp_path: Path) -> None:
        cases = self.plan(tmp_path)
        assert models.head_sizes(cases) == [64], "no size is given"
        described = {"head_dim": 128, "vision_config": {"embed_dim": 320, "num_heads": 4}}
        (tmp_path / "words" / "config.json").write_text(json.dumps(described))
        assert models.head_sizes(cases) == [80, 128]

    def test_a_suite_that_compares_nothing_with_a_reference_has_none_to_compute(self, tmp_path: Path) -> None:
        cases = tuple(replace(case, suite_path="suites.attention:Attention") for case in self.plan(tmp_path))
        assert models.look_up(cases, "AVX2") == models.References(0, (), (), (), ())

    def test_references_that_must_be_computed_are_counted(self) -> None:
        model = Model("big", ("words",), "local", Path("/big"))
        found = models.References(3, (("reference of words on big", model), ("float32-ieee", model)), (), (), ())
        (finding,) = models.check_references(found)
        assert "2 to be computed on the CPU" in finding.found and finding.figures["to_compute"] == 2

    def test_damaged_references_and_claims_without_a_yardstick_are_problems(self) -> None:
        found = list(models.check_references(models.References(1, (), ("huge",), ("x: sha256",), ("float32 'tf32'",))))
        assert [each.status for each in found] == [Status.PROBLEM, Status.PROBLEM, Status.OK]
        assert "huge" in found[2].found


class TestTime:
    def of(self, seconds: float | None) -> Estimate:
        return Estimate((Part("words", "t", "m", 3, seconds), Part("pairs", "t", "m", 2, 60.0, is_learnt=True)))

    def test_the_estimate_is_told_with_its_source(self) -> None:
        found = duration.check(self.of(120.0), None)
        assert found.status is Status.OK and "3 min (1 min of it learnt" in found.found
        assert found.figures == {"estimated_s": 180.0, "learnt_s": 60.0}
        assert "3 cases have no estimate" in duration.check(self.of(None), 5).found

    def test_a_run_that_exceeds_its_budget_is_a_warning_that_says_what_to_drop(self) -> None:
        found = duration.check(self.of(120.0), 2)
        assert found.status is Status.WARNING and "exceeds the budget of 2 min" in found.found
        assert "--suite pairs" in found.advice and "--budget 3" in found.advice


def test_a_device_that_another_run_holds_is_a_warning(tmp_path: Path) -> None:
    assert lock.check("zenith:0", tmp_path).status is Status.OK
    with device_lock("zenith:0", Deadline.never(), lambda holder: None, folder=tmp_path):
        held = lock.check("zenith:0", tmp_path)
    assert held.status is Status.WARNING and f"held by process {os.getpid()}" in held.found
    assert lock.check("zenith:0", tmp_path).status is Status.OK


def test_a_lock_folder_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = lock.check("zenith:0", tmp_path / "file")
    assert found.status is Status.WARNING and "XDG_RUNTIME_DIR" in found.advice


def test_the_parent_examines_without_torch() -> None:
    code = (
        "import sys, conformance.cli.doctor, conformance.doctor.examination; "
        "print(json.dumps(sorted({'torch', 'transformers'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
