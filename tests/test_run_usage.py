"""What is wrong with a command line, a profile or a model folder is said, all of it, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zenith_site

from conformance.__main__ import main


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "cpv"), "unknown backend 'cpv'; did you mean 'cpu'?"),
        (("--backend", "cpu", "--engine", "transfomers"), "did you mean 'transformers'?"),
        (("--backend", "cpu", "--attention", "spda"), "did you mean 'sdpa'?"),
        (("--backend", "cpu", "--dtype", "bfloat61"), "unknown dtype 'bfloat61'; did you mean 'bfloat16'?"),
        (("--backend", "cpu", "--suite", "rerannk"), "unknown suite 'rerannk'; did you mean 'rerank'?"),
        (("--backend", "cpu", "--model", "embeding"), "did you mean 'embedding"),
        (("--backend", "cpu", "--run", "nightli"), "unknown run 'nightli'; did you mean 'nightly'?"),
        (("--backend", "cpu", "--siute", "rerank"), "unknown option '--siute'; did you mean '--suite'?"),
        (("run", "--backend", "cpu", "--deadline", "soon"), "'soon' is no number of seconds above 0"),
        (("--backend", "cpu", "--output", ""), "an empty path is no folder"),
        (("--backend", "cpu", "--as-of", "tomorrow"), "'tomorrow' is no date"),
        (("rum", "--backend", "cpu"), "unknown subcommand 'rum'; did you mean 'run'?"),
        (("--backend", "cpu", "--profile", "x.toml"), "not allowed with argument"),
        (("--profile", "/nowhere/profile.toml"), "there is no profile /nowhere/profile.toml"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_one(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, err = said(capsys, *arguments)
    assert code == 4 and message in err, err


def test_every_unknown_name_is_answered_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(capsys, "--backend", "cpu", "--attention", "spda", "--dtype", "fp16", "--suite", "rerannk")
    assert all(name in err for name in ("'spda'", "'fp16'", "'rerannk'")), err


def test_a_selection_without_cases_executes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, err = said(capsys, "--backend", "cpu", "-k", "no such case", "--output", str(tmp_path / "out"))
    assert code == 5 and "the selection leaves no case" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("[backend\n", ["no TOML"]),
        (
            zenith_site.profile().replace("description", "descripton").replace("kernels", "kernel"),
            ["did you mean 'description'?", "did you mean 'kernels'?"],
        ),
        (zenith_site.profile(add=zenith_site.quirk('suite = "coulors"', "skip = true")), ["did you mean 'colours'?"]),
        (zenith_site.profile().replace("engines.zenith", "engines.zenit"), ["zenit"]),
    ],
)
def test_a_malformed_profile_is_said_with_every_fault(
    site: Path, tmp_path: Path, text: str, messages: list[str]
) -> None:
    done = zenith_site.run(site, tmp_path, text=text)
    assert done.code == 4
    assert all(message in done.process.stderr for message in messages), done.process.stderr
    assert str(tmp_path / "profile.toml") in done.process.stderr
    assert not done.output.exists()


def pickled_only(folder: Path) -> str:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return "only pickled weights (pytorch_model.bin), which are never loaded"


def without_weights(folder: Path) -> str:
    (folder / "model.safetensors").unlink()
    return "no weights; *.safetensors are needed"


def truncated(folder: Path) -> str:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    return "truncated at"


def disagreeing_tokenizer(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 10}))
    return "disagrees with the weights: it produces ids up to 255, but config.json says vocab_size = 10"


def without_config(folder: Path) -> str:
    (folder / "config.json").unlink()
    return "has no config.json, so it holds no model"


@pytest.mark.parametrize(
    "spoil", [pickled_only, without_weights, truncated, disagreeing_tokenizer, without_config], ids=lambda f: f.__name__
)
def test_a_model_folder_that_cannot_be_used_is_said_before_anything_runs(
    site: Path, tmp_path: Path, spoil: object
) -> None:
    folder = tmp_path / "mine"
    zenith_site.write_model(folder)
    message = spoil(folder)  # type: ignore[operator]
    done = zenith_site.run(site, tmp_path, "--model", f"colours={folder}")
    assert done.code == 4 and message in done.process.stderr, done.said
    assert "Traceback" not in done.said and not done.output.exists()


def test_every_fault_of_every_model_folder_is_said(site: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        zenith_site.write_model(tmp_path / name)
    messages = [truncated(tmp_path / "one"), disagreeing_tokenizer(tmp_path / "one"), pickled_only(tmp_path / "two")]
    models = [argument for name in ("one", "two") for argument in ("--model", f"colours={tmp_path / name}")]
    done = zenith_site.run(site, tmp_path, *models)
    assert done.code == 4 and all(message in done.process.stderr for message in messages), done.said


def test_a_missing_model_folder_is_said(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path, "--model", f"colours={tmp_path / 'nowhere'}")
    assert done.code == 4 and "there is no such folder" in done.process.stderr


def test_a_model_without_a_vision_tower_is_no_multimodal_one(site: Path, tmp_path: Path) -> None:
    zenith_site.write_model(tmp_path / "mine")
    given = ("--backend", "cpu", "--suite", "multimodal", "--model", f"multimodal={tmp_path / 'mine'}")
    done = zenith_site.conformance(site, *given, "--output", tmp_path / "out")
    assert done.returncode == 4 and "no vision_config, so no vision tower" in done.stderr, done.stderr
