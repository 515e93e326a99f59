"""A model folder is refused, with every fault, where it cannot be loaded safely; its digest covers what computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zenith_site
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance import checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    zenith_site.write_model(tmp_path / "model")
    return tmp_path / "model"


def faults(folder: Path) -> list[str]:
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.check(folder)
    return str(caught.value).splitlines()


def test_a_model_that_is_to_see_has_a_tower_and_says_how_pictures_are_read(folder: Path) -> None:
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.check(folder, vision=True)
    tower, reading = str(caught.value).splitlines()
    assert tower.startswith(f"{folder / 'config.json'}: no vision_config")
    assert "neither preprocessor_config.json nor processor_config.json" in reading
    (folder / "config.json").write_text(json.dumps({"vocab_size": 256, "vision_config": {"depth": 1}}))
    (folder / "preprocessor_config.json").write_text("{}")
    checkpoint.check(folder, vision=True)


def test_a_sound_folder_passes(folder: Path) -> None:
    checkpoint.check(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert faults(tmp_path / "nowhere")[0].startswith(f"{tmp_path / 'nowhere'}: no such folder")


DEEP = b"[" * 100_000
OFFSETS = (32).to_bytes(8, "little") + b'{"a": {"data_offsets": [0,"b"]}}'


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", None, "missing; the architecture cannot be known"),
        ("config.json", b"{", "not JSON"),
        ("config.json", b"[]", "not a JSON object"),
        ("tokenizer.json", None, "missing; the tokenizer must be a fast one"),
        ("tokenizer.json", b"{}", "not a tokenizer that can be read (KeyError"),
        ("tokenizer.json", b"\xff", "not a tokenizer that can be read (UnicodeDecodeError"),
        ("model.safetensors", None, "no weights"),
        ("tokenizer_config.json", b"[]", "not a JSON object"),
        ("tokenizer_config.json", b"{", "not JSON"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"{}", "holds no tensor"),
        ("model.safetensors", b"", "truncated, or not a safetensors file"),
        ("model.safetensors", b"\x80\x04pickle!!", "truncated, or not a safetensors file"),
        ("config.json", DEEP, "nested too deeply"),
        ("tokenizer.json", DEEP, "nested too deeply"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": "x"}}}', "not a tokenizer that can be read"),
        ("tokenizer_config.json", DEEP, "nested too deeply"),
        ("model.safetensors.index.json", DEEP, "nested too deeply"),
        ("model.safetensors", len(DEEP).to_bytes(8, "little") + DEEP, "its header is not what the format prescribes"),
        ("model.safetensors", OFFSETS, "its header is not what the format prescribes"),
        ("model.safetensors", (8).to_bytes(8, "little") + b"[1,2,3] ", "its header is not what the format prescribes"),
        ("model.safetensors", (9).to_bytes(8, "little") + b'{"a": 1} ', "its header is not what the format prescribes"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(folder: Path, file: str, content: bytes | None, said: str) -> None:
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    found = faults(folder)
    assert any(fault.startswith(str(folder)) and said in fault for fault in found), found


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["a folder", "a link to nothing"])
def test_what_cannot_be_read_is_a_fault_of_that_file_alone(folder: Path, file: str, kind: str) -> None:
    (folder / file).unlink(missing_ok=True)
    (folder / file).mkdir() if kind == "a folder" else (folder / file).symlink_to(folder / "nowhere")
    found = faults(folder)
    assert len(found) == 1 and found[0].startswith(f"{folder / file}: "), found
    checkpoint.digest(folder)


def test_pickled_weights_are_refused_and_beside_safetensors_ignored(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    checkpoint.check(folder)
    (folder / "model.safetensors").unlink()
    assert "pytorch_model.bin" in faults(folder)[0] and "never loaded" in faults(folder)[0]


def test_a_tokenizer_with_ids_that_the_weights_lack_is_refused(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [{"id": 256, "content": "<end>"}]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "produces ids up to 256, but config.json says vocab_size = 256" in faults(folder)[0]


def test_every_fault_is_said_at_once(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "more.safetensors").write_bytes(b"")
    assert len(faults(folder)) == 3


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_weights_cut_anywhere_are_refused(folder: Path, share: float) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[: int(share * len(whole))])
        assert any("truncated" in fault or "not a safetensors file" in fault for fault in faults(folder))
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_the_digest_follows_everything_that_changes_what_the_model_computes(folder: Path, file: str) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    before = checkpoint.digest(folder)
    assert checkpoint.digest(folder) == before
    content = bytearray((folder / file).read_bytes())
    content[-1] ^= 1
    (folder / file).write_bytes(content)
    assert checkpoint.digest(folder) != before


def test_the_digest_does_not_depend_on_where_the_folder_lies_nor_on_what_is_told_about_it(folder: Path) -> None:
    before = checkpoint.digest(folder)
    (folder / "references").mkdir()
    (folder / "references" / "manifest.json").write_text("{}")
    (folder / "accuracy.json").write_text("{}")
    assert checkpoint.digest(folder.rename(folder.with_name("elsewhere"))) == before


def test_content_that_moves_between_files_changes_the_digest(tmp_path: Path) -> None:
    digests = set()
    for name, one, two in (("a", "xy", ""), ("b", "x", "y"), ("c", "", "xy")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "merges.txt").write_text(one)
        (tmp_path / name / "vocab.txt").write_text(two)
        digests.add(checkpoint.digest(tmp_path / name))
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("positions", "tokenizer", "limit"),
    [(64, None, 64), (64, 32, 32), (64, int(1e30), 64), (None, 32, 32), (None, None, None), (-1, 0, None)],
)
def test_the_token_limit_is_the_smaller_of_those_that_are_known(
    folder: Path, positions: int | None, tokenizer: int | None, limit: int | None
) -> None:
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": positions}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": tokenizer}))
    assert checkpoint.token_limit(folder) == limit


def test_a_shard_that_the_index_names_must_be_there(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"weight": "model.safetensors", "more": "model-2.safetensors"}}))
    assert faults(folder) == [
        f"{folder / 'model-2.safetensors'}: missing, though {index.name} names it; fetch the model again"
    ]
    for content in ("{", "[]", '{"weight_map": 3}'):
        index.write_text(content)
        assert "not an index of weights" in faults(folder)[0]


@pytest.mark.parametrize(
    ("config", "window", "softcap"),
    [
        ({}, None, None),
        ({"sliding_window": 64}, 64, None),
        ({"sliding_window": None, "attn_logit_softcapping": None}, None, None),
        ({"sliding_window": 32768, "use_sliding_window": False}, None, None),
        ({"sliding_window": 4096, "layer_types": ["full_attention"]}, None, None),
        (
            {
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"],
                "attn_logit_softcapping": 50,
            },
            64,
            50.0,
        ),
        ({"text_config": {"sliding_window": 512, "attn_logit_softcapping": 30.0}}, 512, 30.0),
    ],
)
def test_window_and_softcap_are_those_that_the_layers_use(
    config: dict[str, Any], window: int | None, softcap: float | None
) -> None:
    assert (checkpoint.window(config), checkpoint.softcap(config)) == (window, softcap)
