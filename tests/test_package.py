"""What is installed is what lies in the tree, and works without it; a vendor's own package is found beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import zenith_site

from conformance.results.validation import read_document

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("conformance", "backends", "suites")

ACME_PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-conformance"
version = "1.0"

[project.entry-points."conformance.backends"]
acme = "acme_conformance"

[tool.setuptools]
packages = ["acme_conformance"]

[tool.setuptools.package-data]
acme_conformance = ["profile.toml"]
"""
ACME_PROFILE = """
[backend]
name = "acme"
description = "Acme's build of torch's CPU kernels"
device = "cpu"
default_engines = ["transformers"]

[dtypes]
default = ["bfloat16"]
supported = ["bfloat16"]

[engines.transformers]
installed_by = "transformers"

[engines.transformers.attention.sdpa]
precision = { bfloat16 = "fused" }
kernels = ["aten::_scaled_dot_product_flash_attention_for_cpu"]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves files in the tree, and takes up those that an earlier one left."""
    source = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    built = tmp_path_factory.mktemp("wheel")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source))
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs; what it depends on comes from the tests' own environment."""
    return install(wheel, tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vendor's package, one TOML and one entry point, installed by pip from the vendor's project folder."""
    project = tmp_path_factory.mktemp("acme")
    (project / "acme_conformance").mkdir()
    (project / "acme_conformance" / "__init__.py").touch()
    (project / "acme_conformance" / "profile.toml").write_text(ACME_PROFILE)
    (project / "pyproject.toml").write_text(ACME_PROJECT)
    return install(project, project / "site")


def install(what: Path, target: Path) -> Path:
    arguments = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
    python("-m", "pip", "install", *arguments, "--target", str(target), str(what))
    return target


def python(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done  # type: ignore[no-any-return]


def conformance(folder: Path, *arguments: object, path: tuple[Path, ...]) -> subprocess.CompletedProcess[str]:
    """`python -m conformance` in `folder`, outside the checkout, with what is installed in `path`."""
    environment = zenith_site.environment(path[0], PYTHONPATH=os.pathsep.join(map(str, path)))
    return python("-m", "conformance", *map(str, arguments), cwd=folder, env=environment)


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    on_disk = {
        str(file.relative_to(ROOT))
        for name in PACKAGES
        for file in (ROOT / name).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == on_disk
    assert {"conformance/profile.schema.json", "conformance/py.typed", "backends/cpu/profile.toml"} <= packed


def test_the_wheel_says_what_it_is_and_what_it_offers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    for group in ("console_scripts", "conformance.backends", "conformance.suites", "conformance.engines"):
        assert f"[{group}]" in entry_points
    assert 'Requires-Dist: torch>=2.6; extra == "transformers"' in metadata
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert required and not any("torch" in line or "transformers" in line for line in required)


def test_the_installed_package_lists_validates_and_finds_its_own_files(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(conformance(tmp_path, "list", "--backend", "cpu", "--json", path=(installed,)).stdout)
    assert len({case["suite"] for case in listed["cases"]}) == 8
    conformance(tmp_path, "validate", path=(installed,))
    code = "import conformance, backends, suites; print(conformance.__file__, backends.__file__, suites.__file__)"
    where = python("-c", code, cwd=tmp_path, env=zenith_site.environment(installed)).stdout.split()
    assert all(Path(file).is_relative_to(installed) for file in where), where


def test_the_installed_command_is_the_module(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "bin" / "conformance", "--version"],
        cwd=tmp_path,
        env=zenith_site.environment(installed),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == conformance(tmp_path, "--version", path=(installed,)).stdout


def test_a_vendors_backend_is_found_beside_the_installed_package(installed: Path, vendor: Path, tmp_path: Path) -> None:
    done = conformance(tmp_path, "list", "--backend", "acme", path=(installed, vendor))
    assert "transformers/sdpa/bfloat16" in done.stdout
    conformance(tmp_path, "validate", "--backend", "acme", path=(installed, vendor))


@pytest.mark.torch
def test_the_installed_package_measures_a_real_engine(installed: Path, tmp_path: Path) -> None:
    selection = ("--suite", "reward", "--attention", "sdpa", "--dtype", "bfloat16")
    conformance(tmp_path, "--backend", "cpu", *selection, path=(installed,))
    document = read_document(tmp_path / "out" / "results.json")
    assert set(document["summary"]["verdicts"]) == {"PASS"}
    assert document["run"]["counters"]["references_computed"] == 0


@pytest.mark.torch
def test_a_vendors_backend_is_measured_by_the_installed_suites(installed: Path, vendor: Path, tmp_path: Path) -> None:
    conformance(tmp_path, "run", "--backend", "acme", "--suite", "reward", path=(installed, vendor))
    document = read_document(tmp_path / "out" / "results.json")
    assert document["run"]["backend"] == "acme" and set(document["summary"]["verdicts"]) == {"PASS"}
    assert (tmp_path / "out" / "junit.xml").is_file()
