from __future__ import annotations

from pathlib import Path

import pytest
import world

from conformance.catalogue import load_catalogue
from conformance.names import UsageError

RIGHT = """
[models.one]
roles = ["words"]
tier = "embedded"
folder = "checkpoints/one"
architecture = "ToyLM"
answers = true
parameters = { pooling = "last" }
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "models.toml"
    path.write_text(text)
    return path


def model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_a_model_is_read_with_its_folder_beside_the_file(tmp_path: Path) -> None:
    model = load_catalogue([write(tmp_path, RIGHT)]).named("one")
    assert model.folder == tmp_path / "checkpoints/one"
    assert (model.roles, model.answers, model.parameters) == (("words",), True, {"pooling": "last"})


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("[models.one]", "[model.one]", "unknown key 'model'; did you mean 'models'"),
        ("tier =", "teir =", "unknown key 'teir'; did you mean 'tier'"),
        ('tier = "embedded"', 'tier = "embeded"', "unknown tier 'embeded'; did you mean 'embedded'"),
        ('tier = "embedded"', "", "'tier' is missing"),
        ('["words"]', '"words"', "should be a list of roles"),
        ('["words"]', "[]", "at least one role"),
        ("answers = true", 'answers = "yes"', "true where the right answers are known"),
        ('"checkpoints/one"', '"../one"', "leads out of the catalogue's folder"),
        ('"checkpoints/one"', '"/one"', "leads out of the catalogue's folder"),
        ("[models.one]", "[models.one", "models.toml: "),
    ],
)
def test_a_wrong_entry_is_rejected(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_catalogue([write(tmp_path, RIGHT.replace(right, wrong))])


def test_two_catalogues_with_one_model_name_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="another catalogue has a model of this name"):
        load_catalogue([write(tmp_path, RIGHT), write(tmp_path / "other", RIGHT)])


def test_a_folder_plays_a_role_with_its_parameters_and_without_answers(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    catalogue = world.CATALOGUE.with_folder("words", folder)
    model = catalogue.named("mine")
    assert (model.tier, model.answers, model.parameters) == ("local", False, {"head_size": 64})
    plan = world.plan(catalogue=catalogue, models=(("words", "mine"),), suites=("words",))
    assert {case.model.name for case in plan.cases} == {"mine"}
    assert {case.test for case in plan.cases} == {"test_tokens_agree"}


def test_a_folder_is_not_planned_unless_it_is_named(tmp_path: Path) -> None:
    catalogue = world.CATALOGUE.with_folder("words", model_folder(tmp_path / "mine"))
    assert [case.id for case in world.plan(catalogue=catalogue).cases] == [case.id for case in world.plan().cases]


def test_one_folder_may_play_two_roles(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    catalogue = world.CATALOGUE.with_folder("words", folder).with_folder("pairs.encoder", folder)
    assert catalogue.named("mine").roles == ("words", "pairs.encoder")


def test_a_folder_that_cannot_play_a_role_is_rejected(tmp_path: Path) -> None:
    catalogue = world.CATALOGUE
    with pytest.raises(UsageError, match="there is no such folder"):
        catalogue.with_folder("words", tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"has no config\.json"):
        catalogue.with_folder("words", tmp_path)
    with pytest.raises(UsageError, match="the catalogue has a model called 'small-words'"):
        catalogue.with_folder("words", model_folder(tmp_path / "small-words"))
    catalogue = catalogue.with_folder("words", model_folder(tmp_path / "mine"))
    with pytest.raises(UsageError, match="has the same name"):
        catalogue.with_folder("words", model_folder(tmp_path / "deeper" / "mine"))
