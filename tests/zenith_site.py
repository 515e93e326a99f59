"""Zenith's package as pip would install it, in a folder for PYTHONPATH, and a stand-in for torch beside it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zenith
from safetensors.numpy import save_file
from zenith.colours import Colours
from zenith.engine import ZenithRunner

from conformance.reference import compute, store
from conformance.results.output import JUNIT, RESULTS
from conformance.results.validation import read_document
from conformance.runner import LoadRequest
from conformance.tokenization import Tokenizer

ROOT = Path(__file__).resolve().parent.parent

PROFILE = """
[backend]
name = "zenith"
description = "Zenith's accelerators"
device = "{device}"
default_engines = ["zenith"]

[dtypes]
default = ["bfloat16"]
supported = ["bfloat16"]

[engines.zenith]
{engine}

[engines.zenith.attention.plain]
precision = {{ bfloat16 = "eager" }}
kernels = ["zenith::plain"]
{plain}

[engines.zenith.attention.quick]
precision = {{ bfloat16 = "fused" }}
kernels = ["zenith::quick"]
"""

QUIRK = """
[[quirks]]
id = "{id}"
kind = "accuracy"
when = {{ {when} }}
effect = {{ {effect} }}
reason = "the colours run"
evidence = [{{ tried = {{ dtype = "float32" }}, outcome = "PASS" }}]
uncovered = "what the quirk takes away"
link = "zenith issue 7"
owner = "zenith"
added = 2026-08-28
expires = 2027-02-28
"""

TORCH = '''
"""As much of torch as the facts of a device need."""
import os
from types import SimpleNamespace as Namespace

__version__ = os.environ.get("ZENITH_TORCH", "2.13.0")
version = Namespace(cuda=None, debug=False)
backends = Namespace(
    cpu=Namespace(get_cpu_capability=lambda: "TOY"),
    cudnn=Namespace(allow_tf32=True),
    cuda=Namespace(
        matmul=Namespace(allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True)
    ),
)
class Tensor:
    """A product of the device, which goes wrong while the file that ZENITH_WRONG names is there."""
    def __init__(self, array):
        self.array = array
    def to(self, kind):
        return self
    def __matmul__(self, other):
        return Tensor(self.array @ other.array + os.path.exists(os.getenv("ZENITH_WRONG", "")))
    def cpu(self):
        return self
    def numpy(self):
        return self.array
from_numpy = Tensor
def free():
    """In GiB: what the file that ZENITH_FREE names holds, if it is there."""
    try:
        return int(open(os.getenv("ZENITH_FREE", "")).read())
    except OSError:
        return 15
zenith = Namespace(
    mem_get_info=lambda index: (free() * 2**30, 2**34),
    is_available=lambda: not (os.environ.get("ZENITH_DEVICES") == "0" or os.path.exists(os.getenv("ZENITH_GONE", ""))),
    get_device_properties=lambda index: Namespace(name="Zenith 1000", total_memory=2**34),
)
get_device_module = lambda kind: zenith
set_float32_matmul_precision = lambda precision: None
get_float32_matmul_precision = lambda: "highest"
are_deterministic_algorithms_enabled = lambda: False
get_num_threads = lambda: 1
'''


def profile(*, device: str = "cpu", engine: str = "", plain: str = "", add: str = "") -> str:
    """Zenith's profile with lines added to the engine, to the plain attention, and at the end."""
    return PROFILE.format(device=device, engine=engine, plain=plain) + add


def quirk(when: str, effect: str, id: str = "colours-run") -> str:
    """A complete quirk with this condition and effect."""
    return QUIRK.format(id=id, when=when, effect=effect)


def install(site: Path) -> Path:
    """Put the package with its metadata, its model with shipped references, and the stand-in for torch into `site`."""
    package = site / "zenith"
    shutil.copytree(Path(zenith.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "profile.toml").write_text(profile())
    write_metadata(
        site,
        "zenith-conformance",
        "[conformance.backends]\nzenith = zenith\n\n[conformance.suites]\ncolours = zenith.colours\n\n"
        "[conformance.engines]\nzenith = zenith.engine:ZenithRunner\n",
    )
    (site / "torch.py").write_text(TORCH)
    for name, version in (("torch", "2.13.0"), ("transformers", "5.24.0")):  # what a reference's identity names
        write_metadata(site, name, "", version)
    write_model(package / "checkpoints" / "tiny-colours")
    write_references(package / "checkpoints" / "tiny-colours")
    return site


def write_metadata(site: Path, name: str, entry_points: str, version: str = "1.0") -> None:
    """What makes a folder's package a distribution with entry points."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


def write_model(folder: Path) -> None:
    """A model folder that can be checked and hashed."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 256, "max_position_embeddings": 64}))
    vocabulary = {f"t{index}": index for index in range(256)}
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"}})
    )
    save_file({"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}, str(folder / "model.safetensors"))


def write_references(folder: Path) -> None:
    """The references that a package ships for its embedded model, computed by the engine itself, which is exact."""
    parameters = {"max_tokens": 64}
    parts = store.shipped(folder, store.identify(Colours, folder, parameters, "any"))
    request = LoadRequest("tiny-colours", str(folder), "colours", "cpu", "plain", "float64", parameters)
    subject = compute.Subject(Colours, request, Tokenizer(folder))
    reference = compute.compute_reference(subject, ZenithRunner)
    parts.save(compute.REFERENCE, reference)
    for dtype, precision in (("bfloat16", "eager"), ("bfloat16", "fused")):
        yardstick = compute.compute_yardstick(subject, reference, dtype, precision, ZenithRunner)
        parts.save_yardstick(compute.part_name(dtype, precision), yardstick, reference)


def environment(site: Path, **more: str) -> dict[str, str]:
    """What a subprocess needs to see Zenith's package, with device locks and a cache apart from others'."""
    runtime = site.parent / "runtime"
    runtime.mkdir(exist_ok=True, mode=0o700)
    found = {key: value for key, value in os.environ.items() if not key.startswith("CONFORMANCE_")}
    own = {"XDG_RUNTIME_DIR": str(runtime), "CONFORMANCE_CACHE": str(site.parent / "cache")}
    return {**found, "PYTHONPATH": str(site), **own, **more}


@dataclass(frozen=True)
class Ran:
    """A run that ended: its process, and what it wrote."""

    process: subprocess.CompletedProcess[str]
    output: Path

    @property
    def code(self) -> int:
        return self.process.returncode

    @property
    def said(self) -> str:
        return self.process.stdout + self.process.stderr

    @property
    def document(self) -> dict[str, Any]:
        """results.json, checked against its schema and against itself."""
        return read_document(self.output / RESULTS)

    @property
    def cases(self) -> dict[str, dict[str, Any]]:
        """The cases by test name; by target and test name where there are several targets."""
        cases = self.document["cases"]
        several = len({case["target"]["attention"] for case in cases}) > 1
        return {f"{case['target']['attention']}.{case['test']}" if several else case["test"]: case for case in cases}

    @property
    def verdicts(self) -> dict[str, str]:
        return {name: case["verdict"] for name, case in self.cases.items()}

    @property
    def junit(self) -> dict[str, int]:
        """How many testcases junit.xml has, and how many of each element below them."""
        root = xml.etree.ElementTree.parse(self.output / JUNIT).getroot()
        cases = list(root.iter("testcase"))
        kinds = ("failure", "error", "skipped")
        found = {kind: sum(case.find(kind) is not None for case in cases) for kind in kinds}
        assert root.attrib["tests"] == str(len(cases))
        return {"testcase": len(cases), **found}


def run(site: Path, folder: Path, *arguments: Any, text: str | None = None, **more: str) -> Ran:
    """Run Zenith's own suite; with `text`, as a profile of that text says."""
    folder.mkdir(exist_ok=True)
    output = folder / "out"
    backend: tuple[Any, ...] = ("--backend", "zenith")
    if text is not None:
        (folder / "profile.toml").write_text(text)
        backend = ("--profile", folder / "profile.toml")
    process = conformance(site, *backend, "--suite", "colours", "--output", output, *arguments, **more)
    return Ran(process, output)


def conformance(site: Path, *arguments: Any, **more: str) -> subprocess.CompletedProcess[str]:
    """`python -m conformance` from the checkout's root, with Zenith's package installed."""
    return executed(site, [sys.executable, "-m", "conformance", *map(str, arguments)], **more)


def executed(
    site: Path, command: list[str], *, seconds: float = 60, file_limit: int | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Any command there; with `file_limit`, none of its files may grow beyond so many bytes, as on a full disk."""

    def limit_files() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment(site, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        preexec_fn=limit_files,
    )


PLAIN = ("--attention", "plain")


def run_plain(site: Path, folder: Path, *arguments: Any, text: str | None = None, **more: str) -> Ran:
    """`run`, on one attention backend."""
    return run(site, folder, *PLAIN, *arguments, text=text, **more)


def misdeeds(**of: str) -> str:
    """The profile whose engine does these misdeeds."""
    table = ", ".join(f'{occasion} = "{name}"' for occasion, name in of.items())
    return profile(engine=f"options = {{ misdeeds = {{ {table} }} }}")
