"""A model's tokenizer says what texts and ids mean, without the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.tokenization import Tokenizer

WORDS = ["<end>", "red", "green", "blue", "<pad>"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    special = [
        {
            "id": index,
            "content": WORDS[index],
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for index in (0, 4)
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<end>": {"id": "<end>", "ids": [0], "tokens": ["<end>"]}},
        },
        "model": {"type": "WordLevel", "vocab": {word: id for id, word in enumerate(WORDS)}, "unk_token": "<pad>"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    return tmp_path


def test_text_becomes_ids_and_no_special_token_is_added(folder: Path) -> None:
    assert Tokenizer(folder).encode("red blue green") == (1, 3, 2)


def test_ids_become_text_and_special_tokens_are_left_out(folder: Path) -> None:
    assert Tokenizer(folder).decode([1, 3, 4, 0]) == "red blue"


def test_the_size_counts_added_tokens(folder: Path) -> None:
    assert Tokenizer(folder).size == 5


@pytest.mark.parametrize(
    ("generation", "ends"), [(None, (7,)), ({"eos_token_id": [0, 4]}, (0, 4)), ({"eos_token_id": 0}, (0,)), ({}, (7,))]
)
def test_end_ids_are_those_of_the_generation_config_or_else_of_the_config(
    folder: Path, generation: dict[str, object] | None, ends: tuple[int, ...]
) -> None:
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    assert Tokenizer(folder).end_ids == ends


def test_a_model_without_an_end_has_no_end_ids(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    assert Tokenizer(folder).end_ids == ()


def test_a_missing_file_is_an_error_on_first_use_and_not_before(tmp_path: Path) -> None:
    tokenizer = Tokenizer(tmp_path)
    with pytest.raises(Exception, match=r"(?i)no such file"):
        tokenizer.encode("red")


def test_no_engine_is_imported(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from conformance.tokenization import Tokenizer; "
        f"Tokenizer(Path({str(folder)!r})).encode('red'); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
