"""`tools/real_shapes.py` works through every kind of full-size model, here with fewer layers and narrower ones."""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conformance.catalogue import Model, load_catalogue
from conformance.inventory import load_suites, of_roles
from conformance.registry import discover

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = load_catalogue(discover().catalogue_paths())
ONE_OF_A_KIND = {
    (model.roles[0], json.loads(model.configuration.read_text())["model_type"]): model
    for model in CATALOGUE.models
    if model.configuration is not None
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_shapes", ROOT / "tools" / "real_shapes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shrunk(model: Model, folder: Path) -> Model:
    """The model with two layers and narrow ones, its heads and vocabulary as they are."""
    assert model.configuration is not None
    config: dict[str, Any] = json.loads(model.configuration.read_text())
    heads = config["num_attention_heads"]
    config.update(num_hidden_layers=2, intermediate_size=128, hidden_size=16 * heads, max_window_layers=2)
    if "head_dim" in config:
        config["head_dim"] = 16
    if config["model_type"] == "qwen2_vl":
        config["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 3, 3]}
        config["vision_config"].update(depth=2, embed_dim=64, num_heads=4, hidden_size=16 * heads)
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return replace(model, configuration=file)


@pytest.mark.parametrize("kind", ONE_OF_A_KIND, ids=lambda kind: "-".join(kind))
def test_every_kind_of_model_completes(tool: ModuleType, tmp_path: Path, kind: tuple[str, str]) -> None:
    suites = of_roles(load_suites(discover()))
    model = shrunk(ONE_OF_A_KIND[kind], tmp_path)
    options = argparse.Namespace(device="cpu", dtype="bfloat16", prompts=3, tolerance=1e9, scratch=tmp_path)
    found = tool._try(model, "sdpa", CATALOGUE, suites, options)
    assert found["faults"] == []
    assert found["estimate_gib"] > 0
    # What earlier tests gave back to the allocator may hold a small model whole, so that no more memory is taken.
    assert found["peak_gib"] >= 0
    assert found["weights_gib"] == pytest.approx(2 * found["parameters"] / 2**30, abs=1e-3)


def test_a_peak_above_the_estimate_is_a_fault(tool: ModuleType, tmp_path: Path) -> None:
    suites = of_roles(load_suites(discover()))
    model = shrunk(ONE_OF_A_KIND["classification", "qwen2"], tmp_path)
    options = argparse.Namespace(device="cpu", dtype="bfloat16", prompts=3, tolerance=-1.0, scratch=tmp_path)
    (fault,) = tool._try(model, "sdpa", CATALOGUE, suites, options)["faults"]
    assert "times the estimate of the batches that were formed" in fault


def test_a_model_that_cannot_be_made_is_a_fault_and_not_the_end(tool: ModuleType, tmp_path: Path) -> None:
    model = shrunk(ONE_OF_A_KIND["classification", "qwen2"], tmp_path)
    assert model.configuration is not None
    model.configuration.write_text("{}")
    suites = of_roles(load_suites(discover()))
    options = argparse.Namespace(device="cpu", dtype="bfloat16", prompts=3, tolerance=0.25, scratch=tmp_path)
    assert tool._try(model, "sdpa", CATALOGUE, suites, options)["faults"]
