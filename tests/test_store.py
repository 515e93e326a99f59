"""Stored references come back as they were saved, and are never taken for those of other weights or inputs."""

from __future__ import annotations

import importlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zenith_site
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zenith import colours

from conformance.codec import pack
from conformance.reference import store
from conformance.reference.sample import values_of
from conformance.runner import Effective, Generations, Scalars

IDENTITY = store.Identity("weights", "inputs", "code", {"torch": "2.13.0", "transformers": "5.24.0"}, "AVX2")
RAN = Effective("float64", "eager", {"aten::_softmax": 8}, 4, 2)
HUES = Scalars(((1, 2), (3,)), RAN, np.array([0.1, -2.5]))
NAMES = Generations(
    ((1,),),
    RAN,
    ((5, 6),),
    ("é\ud800",),
    ("stop",),
    np.array([[-0.5, np.nan]]),
    np.array([[[5, 6], [-1, -1]]]),
    np.array([[[-0.5, -1.0], [np.nan, -np.inf]]]),
)


def parts(folder: Path, **other: str) -> store.PartSet:
    return store.PartSet(folder / "set", replace(IDENTITY, **other))  # type: ignore[arg-type]


def plain(part: store.Part | None) -> object:
    """A part with its arrays as bytes, so that NaN equals NaN."""
    assert part is not None
    tree, arrays = pack(part)
    return tree, [(array.dtype.str, array.shape, array.tobytes()) for array in arrays]


def test_a_part_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    parts(tmp_path).save("reference", {"hues": HUES, "names": NAMES})
    assert plain(parts(tmp_path).load("reference")) == plain({"hues": HUES, "names": NAMES})


def test_a_part_that_was_never_saved_is_none(tmp_path: Path) -> None:
    assert parts(tmp_path).load("reference") is None
    parts(tmp_path).save("reference", {"hues": HUES})
    assert parts(tmp_path).load("bfloat16-eager") is None
    assert parts(tmp_path).yardstick("bfloat16-eager", {"hues": HUES}) is None


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e-2, 1e-2)), min_size=1, max_size=8))
def test_a_yardstick_comes_back_as_near_as_float32_holds_its_error(
    tmp_path: Path, numbers: list[tuple[float, float]]
) -> None:
    reference: store.Part = {"hues": replace(HUES, values=np.array([value for value, _ in numbers]))}
    yardstick: store.Part = {"hues": replace(HUES, values=np.array([value + error for value, error in numbers]))}
    here = parts(tmp_path)
    here.save("reference", reference)
    here.save_yardstick("bfloat16-eager", yardstick, reference)
    found = here.yardstick("bfloat16-eager", reference)
    assert found is not None and found["hues"].prompt_token_ids == HUES.prompt_token_ids
    errors, kept = (values_of(part["hues"]) - values_of(reference["hues"]) for part in (yardstick, found))
    assert np.allclose(kept, errors, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("other", [{"weights": "others"}, {"inputs": "others"}])
def test_parts_of_other_weights_or_inputs_are_not_found(tmp_path: Path, other: dict[str, str]) -> None:
    parts(tmp_path).save("reference", {"hues": HUES})
    assert parts(tmp_path, **other).load("reference") is None


@pytest.mark.parametrize("other", [{"weights": "others"}, {"inputs": "others"}])
def test_saving_for_other_weights_or_inputs_forgets_what_was_there(tmp_path: Path, other: dict[str, str]) -> None:
    parts(tmp_path).save("bfloat16-eager", {"hues": HUES})
    parts(tmp_path, **other).save("reference", {"hues": HUES})
    assert parts(tmp_path, **other).load("bfloat16-eager") is None


@pytest.mark.parametrize("other", [{"code": "others"}, {"isa": "AVX512"}])
def test_shipped_parts_hold_whatever_computed_them(tmp_path: Path, other: dict[str, str]) -> None:
    parts(tmp_path).save("reference", {"hues": HUES})
    assert parts(tmp_path, **other).load("reference") is not None


def test_a_damaged_part_is_refused_by_name(tmp_path: Path) -> None:
    parts(tmp_path).save("reference", {"hues": HUES})
    file = tmp_path / "set" / "reference.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(store.StoreError, match=r"reference\.safetensors: its sha256 is not the manifest's; delete"):
        parts(tmp_path).load("reference")
    file.unlink()
    with pytest.raises(store.StoreError, match=r"reference\.safetensors: cannot be read"):
        parts(tmp_path).load("reference")


def test_a_damaged_manifest_is_refused_by_name(tmp_path: Path) -> None:
    parts(tmp_path).save("reference", {"hues": HUES})
    (tmp_path / "set" / "manifest.json").write_text("{")
    with pytest.raises(store.StoreError, match=r"manifest\.json: not JSON"):
        parts(tmp_path).load("reference")


def test_a_reader_sees_the_old_manifest_or_the_new_one(tmp_path: Path) -> None:
    here, stop, seen = parts(tmp_path), threading.Event(), []
    here.save("reference", {"hues": HUES})

    def read() -> None:
        while not stop.is_set():
            seen.append(here.load("reference") is not None)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(60):
        here.save("bfloat16-eager", {"hues": HUES})
    stop.set()
    reader.join()
    assert seen and all(seen)
    names = {file.name for file in (tmp_path / "set").iterdir()}
    assert names == {"manifest.json", "reference.safetensors", "bfloat16-eager.safetensors"}


def test_a_manifest_names_what_was_computed_for_whom(tmp_path: Path) -> None:
    parts(tmp_path).save("reference", {"hues": HUES})
    manifest = json.loads((tmp_path / "set" / "manifest.json").read_text())
    assert manifest["identity"] == IDENTITY.to_json() and list(manifest["parts"]) == ["reference"]


def test_another_sibling_of_the_suite_is_another_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sibling_suites").mkdir()
    for name, text in (("__init__", ""), ("hues", "from sibling_suites import asking"), ("asking", "TOP = 20")):
        (tmp_path / "sibling_suites" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("sibling_suites.hues")
    found = []
    for text in ("TOP = 20", "TOP = 40", "TOP = 20"):
        (tmp_path / "sibling_suites" / "asking.py").write_text(text)
        store._code_digest.cache_clear()
        found.append(store._code_digest("sibling_suites.hues"))
    assert found[0] == found[2] != found[1]


def test_the_cache_lies_where_the_environment_says_and_apart_for_each_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path))
    folders = {
        store.cached(replace(IDENTITY, **other)).folder
        for other in (
            {},
            {"weights": "w"},
            {"inputs": "i"},
            {"code": "c"},
            {"versions": {"torch": "2.12"}},
            {"isa": ""},
        )
    }
    assert len(folders) == 6 and all(folder.parent == tmp_path / "references" for folder in folders)
    monkeypatch.delenv("CONFORMANCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert store.cached(IDENTITY).folder.is_relative_to(tmp_path / "home" / "conformance")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def test_an_identity_follows_weights_inputs_parameters_and_the_machine(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site))  # where torch and transformers have a version
    folder = tmp_path / "model"
    zenith_site.write_model(folder)
    first = store.identify(colours.Colours, folder, {"max_tokens": 64}, "AVX2")
    assert store.identify(colours.Colours, folder, {"max_tokens": 64}, "AVX2") == first
    assert store.identify(colours.Colours, folder, {"max_tokens": 32}, "AVX2").inputs != first.inputs
    assert store.identify(colours.Colours, folder, {"max_tokens": 64}, "NEON").key != first.key
    monkeypatch.setattr(colours.Colours, "inputs", staticmethod(lambda: "others"))
    assert store.identify(colours.Colours, folder, {"max_tokens": 64}, "AVX2").inputs != first.inputs
    (folder / "config.json").write_text("{}")
    assert store.identify(colours.Colours, folder, {"max_tokens": 64}, "AVX2").weights != first.weights
