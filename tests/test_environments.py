"""Engines in an environment of their own: the interpreter that was meant, what is there, and what a worker needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import environment_of_its_own
import pytest
import world
import zenith_site
from zenith_site import PLAIN, Ran, profile

from conformance import environments
from conformance.environments import environment_facts, interpreter, versions_for, with_interpreters
from conformance.execution import bootstrap
from conformance.execution.errors import ServerDied, WorkerCrashed
from conformance.execution.holder import Holder, Load
from conformance.execution.pools import Pools
from conformance.execution.process import WorkerPool
from conformance.execution.remote import RemoteRunner
from conformance.names import UsageError
from conformance.obstacles import missing_engine
from conformance.profile import EngineClaims
from conformance.runner import LoadRequest, Unavailable

ENGINES = Path(__file__).parent / "engines"
CLOSURE = """\
import importlib, sys

def main(arguments):
    for name in arguments:
        importlib.import_module(name)
    known = set(sys.stdlib_module_names) | {"__main__"}
    print(*sorted({name.partition(".")[0] for name in sys.modules} - known))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has numpy, and no more."""
    return environment_of_its_own.make(tmp_path_factory.mktemp("bare") / "venv", distributions={"zengine": "1.5"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


# What a worker needs.


def test_a_worker_and_its_server_import_nothing_beyond_the_standard_library_and_numpy(tmp_path: Path) -> None:
    (tmp_path / "closure.py").write_text(CLOSURE)
    modules = ("conformance.execution.worker", "conformance.execution.server", "fake_runner")
    command = bootstrap.command(sys.executable, "closure", *modules)
    done = subprocess.run(
        [command[0], "-S", *command[1:]],  # without site: what start-up files import is not the worker's
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ENGINES), *sys.path])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["closure", "conformance", "fake_runner", "numpy"], done.stderr


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_runs_in_an_environment_that_has_numpy_alone(bare: Path, tmp_path: Path, start: Any) -> None:
    here = {"PYTHONPATH": str(ENGINES)}
    preload = ["fake_runner"] if start == "fork" else []
    request = LoadRequest("fake", "/nowhere", "embedding", "cpu", "none", "float32")
    with (
        WorkerPool(bare, environment=here, preload=preload, start=start, log_dir=tmp_path) as pool,
        RemoteRunner(request, pool, "fake_runner:FakeRunner", load_seconds=20, call_seconds=20) as remote,
    ):
        assert remote.embed(["four"], dimensions=2).values.tolist() == [[4.0, 2.0]]
        told = remote.facts("fake_runner:interpreter")
        assert Path(told["prefix"]) == bare.parents[1]
        assert told["has_jsonschema"] is False
        with pytest.raises(WorkerCrashed, match="137"):
            remote.classify(["exit 137"])


def test_an_interpreter_that_dies_at_its_start_is_told_with_what_it_said(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no space left >&2\nexit 137\n")
    broken.chmod(0o755)
    pool = WorkerPool(broken, environment={}, log_dir=tmp_path / "log")
    with pool, pytest.raises(ServerDied, match="exited with code 137") as raised:
        pool.start_worker()
    assert "no space left" in raised.value.log_tail


# Which interpreter is meant.


def test_a_path_is_taken_as_it_is_and_a_link_is_no_other_interpreter(bare: Path) -> None:
    assert interpreter(str(bare), Path("/")) == str(bare) != str(bare.resolve())
    assert interpreter("bin/python", bare.parents[1]) == str(bare)
    assert interpreter("sh", Path("/")).endswith("/sh")


def test_what_is_no_interpreter_is_told_with_what_would_be_right(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for written, said in {
        str(bare.parents[1]): f"is a folder; did you mean {bare}?",
        str(tmp_path): "is a folder; give the path of an interpreter",
        str(tmp_path / "python"): f"there is no {tmp_path / 'python'}; give the path",
        str(tmp_path / "notes.txt"): "cannot be executed",
        "no-such-program": "no program on PATH has this name",
        "": "is a folder",
    }.items():
        with pytest.raises(LookupError) as raised:
            interpreter(written, tmp_path)
        assert said in str(raised.value.args[0]), written


def test_whose_interpreter_it_is_may_be_left_out_where_one_engine_is_selected(bare: Path) -> None:
    toy = world.profile()
    changed = with_interpreters(toy, [str(bare)], ["vllm"])
    assert (changed.engines["vllm"].python, changed.engines["transformers"].python) == (str(bare), "")
    both = with_interpreters(toy, [f"vllm={bare}", f"transformers={bare}"], ["vllm", "transformers"])
    assert {engine.python for engine in both.engines.values()} == {str(bare)}


def test_every_fault_of_engine_python_is_told(bare: Path) -> None:
    toy = world.profile()
    for given, chosen, said in (
        ([str(bare)], ["vllm", "transformers"], f"say whose it is: --engine-python vllm={bare} or --engine-python"),
        ([f"vlm={bare}"], ["vllm"], "unknown engine 'vlm'; did you mean 'vllm'?"),
        ([f"vllm={bare}"], ["transformers"], "vllm is not selected; add --engine vllm"),
        ([str(bare), f"vllm={bare}"], ["vllm"], "vllm has the interpreter"),
        ([f"vllm={bare.parent}"], ["vllm"], "is a folder; give the path of an interpreter"),
        (["/a=b/python"], ["vllm"], "there is no /a=b/python"),
    ):
        with pytest.raises(UsageError) as raised:
            with_interpreters(toy, given, chosen)
        assert said in str(raised.value), (given, str(raised.value))
    with pytest.raises(UsageError) as raised:
        with_interpreters(toy, ["vlm=/x", "vllm=/no"], ["vllm"])
    assert len(raised.value.faults) == 2


# What is there.


def claims(python: Path | str, **more: Any) -> EngineClaims:
    return EngineClaims("zengine", {}, installed_by=("zengine",), python=str(python), **more)


def test_the_facts_of_an_environment_are_those_of_its_interpreter(bare: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/extra")
    found = environment_facts(claims(bare, environment={"MODE": "eager"}), ["zengine", "absent"], Path("/"))
    assert (found["python"], found["prefix"]) == (str(bare), str(bare.parents[1]))
    assert found["version"] == ".".join(map(str, sys.version_info[:3])) and "fault" not in found
    assert found["versions"]["zengine"] == "1.5" and found["versions"]["absent"] is None
    assert found["versions"]["numpy"] and found["environment"] == {"MODE": "eager", "PYTHONPATH": "/opt/extra"}


def test_an_environment_without_numpy_is_told_how_to_get_it(tmp_path: Path) -> None:
    python = environment_of_its_own.make(tmp_path / "venv", has_numpy=False)
    found = environment_facts(claims(python), [], Path("/"))
    assert found["fault"] == f"{python} has no numpy, which a worker needs; `{python} -m pip install numpy`"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Usage: something'", "does not answer like a Python interpreter (exit code 0)"),
        ("echo cannot >&2; exit 3", "does not answer like a Python interpreter (exit code 3: cannot)"),
        ("kill -9 $$", "exit code -9"),
        ("echo '{}'", "does not answer like a Python"),
        ("sleep 30", "has not answered within 0.5 s"),
        (
            'echo \'{"version": "3.9.1", "prefix": "/", "versions": {"numpy": "1"}, "environment": {}}\'',
            "is Python 3.9.1; 3.10 or newer is needed",
        ),
    ],
)
def test_a_program_that_is_no_interpreter_for_a_worker_is_a_fault(
    tmp_path: Path, monkeypatch: Any, script: str, said: str
) -> None:
    monkeypatch.setattr(environments, "_SECONDS", 0.5 if "sleep" in script else 60.0)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert said in environment_facts(claims(program), [], Path("/"))["fault"]


def test_versions_and_what_is_missing_are_those_of_the_engines_interpreter() -> None:
    engine = claims("/e/python")
    facts = {"versions": {"zengine": "1"}, "environments": {"zengine": {"python": "/e", "versions": {"zengine": None}}}}
    assert versions_for(facts, "zengine") == {"zengine": None}
    assert versions_for(facts, "other") == {"zengine": "1"}
    assert missing_engine(engine, facts) == "engine 'zengine': /e has no zengine; `/e -m pip install zengine`"
    facts["environments"]["zengine"]["fault"] = "/e is a folder"  # type: ignore[index]
    assert missing_engine(engine, facts).endswith("no worker can run in its interpreter: /e is a folder")


def test_a_quirk_looks_at_the_versions_where_the_engine_runs() -> None:
    drifts = world.profile(add=world.quirk('versions = { zengine = ">=2" }', "max_tokens = 3"))
    known = {"python": "/e", "versions": {"transformers": "5.0", "zengine": "2.1"}}
    facts = {"versions": {"transformers": "5.0", "zengine": "1.0"}, "environments": {"transformers": known}}
    assert {case.quirks for case in world.plan(drifts, facts=facts).cases} == {("late-drift",)}
    del facts["environments"]
    assert {case.quirks for case in world.plan(drifts, facts=facts).cases} == {()}


# A whole run.


def test_a_run_in_another_interpreter_tells_which_and_runs_there(site: Path, bare: Path, tmp_path: Path) -> None:
    text = profile(engine='environment = { ZENITH_DIARY = "%s" }' % (tmp_path / "diary"))
    done = zenith_site.run(site, tmp_path, *PLAIN, "--engine-python", bare, text=text)
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    told = done.document["facts"]["environments"]["zenith"]
    assert told["prefix"].endswith("venv") and told["environment"]["ZENITH_DIARY"].endswith("/diary")
    assert (tmp_path / "diary").read_text().splitlines()[0].startswith("load usual")
    assert "--engine-python zenith=.../bin/python" in done.cases["test_hues_agree"]["reproduce"]


@pytest.mark.parametrize(
    ("occasion", "misdeed", "verdict", "said"),
    [
        ("load", "exit_137", "CRASH", "exited with code 137 while running load"),
        ("score_pairs", "exit_137", "CRASH", "exited with code 137 while running score_pairs"),
        ("score_pairs", "segfault", "CRASH", "killed by SIGSEGV"),
        ("load", "hang", "TIMEOUT", "load had not ended when its deadline"),
        ("score_pairs", "hang", "TIMEOUT", "score_pairs had not ended when its deadline"),
    ],
)
def test_an_engine_of_another_interpreter_that_dies_or_hangs_costs_what_it_costs_in_this_one(
    site: Path, bare: Path, tmp_path: Path, occasion: str, misdeed: str, verdict: str, said: str
) -> None:
    text = profile(engine=f'options = {{ misdeeds = {{ {occasion} = "{misdeed}" }} }}')
    command = ["--engine-python", bare, "--deadline", "2"]
    if (occasion, misdeed) == ("load", "hang"):  # loading has ten minutes, unless it is asked for otherwise
        done = impatient(site, tmp_path, text, *map(str, command))
    else:
        done = zenith_site.run(site, tmp_path, *PLAIN, *command, text=text)
    verdicts = list(done.verdicts.values())
    assert done.code == 1 and verdicts.count(verdict) == 2, done.said
    assert set(verdicts) - {verdict} <= {"PASS", "NOT_RUN"}
    assert said in next(case["reason"] for case in done.cases.values() if case["verdict"] == verdict)


def impatient(site: Path, folder: Path, text: str, *arguments: str) -> Ran:
    """A run that gives the loading of a model two seconds."""
    (folder / "profile.toml").write_text(text)
    script = folder / "impatient.py"
    script.write_text(
        "import sys\nimport conformance.execution.deadline as deadline\ndeadline.LOAD_SECONDS = 2.0\n"
        "from conformance.__main__ import main\nsys.exit(main())\n"
    )
    command = [sys.executable, str(script), "--profile", str(folder / "profile.toml"), "--suite", "colours"]
    here = {"PYTHONPATH": f"{site}{os.pathsep}{zenith_site.ROOT}"}
    process = zenith_site.executed(site, [*command, *PLAIN, "--output", str(folder / "out"), *arguments], **here)
    return Ran(process, folder / "out")


def test_an_interpreter_that_has_gone_when_the_engine_is_loaded_is_no_crash_of_the_engine(tmp_path: Path) -> None:
    request = LoadRequest("fake", "/nowhere", "embedding", "cpu", "none", "float32")
    load = Load(request, "fake_runner:FakeRunner", "fork", {}, ("fake/none", "fake"), python=str(tmp_path / "python"))
    with Pools() as pools, Holder(pools, 20) as holder:
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"the interpreter .*/python cannot be started: .*No such file"):
                holder.runner(load)
        assert holder.loads == 1 and not holder.crashes  # asked again, it is not tried again


def test_an_interpreter_that_is_not_there_is_a_usage_error_before_anything_runs(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path, *PLAIN, "--engine-python", tmp_path)
    assert done.code == 4 and "is a folder; give the path of an interpreter" in done.process.stderr
    assert not done.output.exists()


def test_a_profiles_interpreter_that_is_not_there_makes_the_engine_unavailable(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path, *PLAIN, text=profile(engine='python = "gone/bin/python"'))
    assert set(done.verdicts.values()) == {"ENVIRONMENT"} and done.code == 5, done.said
    reason = done.cases["test_hues_agree"]["reason"]
    assert "no worker can run in its interpreter: there is no .../bin/python; give the path" in reason


def test_list_and_explain_know_the_interpreter_without_numpy_or_torch(site: Path, bare: Path) -> None:
    listed = zenith_site.conformance(site, "list", "--backend", "zenith", "--engine-python", bare, "--json")
    assert json.loads(listed.stdout)["facts"]["environments"]["zenith"]["versions"]["numpy"]
    shown = zenith_site.conformance(
        site, "explain", "hues_agree[zenith/plain", "--backend", "zenith", "--engine-python", f"zenith={bare}"
    )
    assert f"interpreter  {bare}" in shown.stdout, shown.stderr


def test_a_resumed_run_is_refused_in_another_interpreter(site: Path, bare: Path, tmp_path: Path) -> None:
    zenith_site.run(site, tmp_path, *PLAIN, "--budget", "0.0001", "--engine-python", bare)
    again = zenith_site.run(site, tmp_path, *PLAIN, "--resume")
    assert again.code == 4 and "environments" in again.process.stderr, again.said
