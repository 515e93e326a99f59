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
        ('pooling = "last"', "cap = nan", r"models.one.parameters.cap: nan is no number that can be reckoned with"),
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


FULL = """
[models.large]
roles = ["words"]
tier = "full"
hub = "owner/large-1.5B"
architecture = "ToyLM"
configuration = "large.json"
"""


def test_a_fetched_model_is_read_with_its_origin(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text('{"hidden_size": 512, "num_attention_heads": 4}')
    model = load_catalogue([write(tmp_path, FULL)]).named("large")
    assert (model.hub, model.revision, model.trust_remote_code) == ("owner/large-1.5B", "", False)
    assert model.head_size == 128, "known before the model is fetched"
    pinned = FULL + f'revision = "{"a1" * 20}"\ntrust_remote_code = true\n'
    model = load_catalogue([write(tmp_path, pinned)]).named("large")
    assert (model.revision, model.trust_remote_code) == ("a1" * 20, True)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('hub = "owner/large-1.5B"', "", "'hub' is missing; it is the owner/name"),
        ("owner/large-1.5B", "large", "'large', but should be the owner/name"),
        ("owner/large-1.5B", "../large", "should be the owner/name"),
        ("owner/large-1.5B", "https://hub/owner/large", "should be the owner/name"),
        ('hub = "owner/large-1.5B"', "hub = 3", "3, but should be the owner/name"),
        ("hub =", "hubb =", "unknown key 'hubb'; did you mean 'hub'"),
        ("tier =", 'revision = "main"\ntier =', "a branch or tag can move"),
        ("tier =", f'revision = "{"A" * 40}"\ntier =', "40 hex digits"),
        ("tier =", "trust_remote_code = true\ntier =", "true without a revision"),
        ("tier =", 'folder = "here"\ntier =', "belongs to models of the tier 'embedded', and this one's is 'full'"),
        ('"large.json"', '"../large.json"', "leads out of the catalogue's folder"),
        ("[models.large]", "models = 3\n[more.large]", "but should be tables"),
    ],
)
def test_a_wrong_entry_of_a_fetched_model_is_rejected(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_catalogue([write(tmp_path, FULL.replace(right, wrong))])


def test_an_embedded_model_comes_from_no_hub(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="belongs to models of the tier 'full', and this one's is 'embedded'"):
        load_catalogue([write(tmp_path, RIGHT + 'hub = "owner/one"\n')])


def test_every_fault_of_every_entry_is_said_at_once(tmp_path: Path) -> None:
    text = RIGHT.replace("tier =", "teir =") + FULL.replace("owner/", "").replace("tier =", 'revision = "v1"\ntier =')
    with pytest.raises(UsageError) as caught:
        load_catalogue([write(tmp_path, text)])
    assert len(caught.value.faults) == 4, caught.value.faults
