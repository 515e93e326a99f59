"""`models fetch`, `list` and `verify`, from a hub, its cache and folders; nothing here leaves this machine."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import hub_site
import pytest
from hub_site import COMMIT, HUB, NAME, Hub, Site

from conformance.catalogue import Model
from conformance.cli import say
from conformance.models import pins, places
from conformance.names import UsageError

pytest.importorskip("huggingface_hub")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return hub_site.install(tmp_path)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_site.hub_of(hub_site.model(tmp_path / "upstream")) as hub:
        yield hub


def row(site: Site) -> dict[str, object]:
    found = json.loads(site.models("list", "--json").stdout)
    return next(each for each in found if each["name"] == NAME)


def test_the_caches_place_is_the_librarys_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert str(places.hub_cache()) == constants.default_home.replace("~", str(Path.home())) + "/huggingface/hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert places.hub_cache() == tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "other"))
    assert places.hub_cache() == tmp_path / "other"


def test_a_model_that_was_not_fetched_is_missing_and_says_how_to_get_it(site: Site) -> None:
    assert (row(site)["where"], row(site)["pinned_by"]) == ("missing", None)
    done = site.models()
    assert "big-colours" in done.stdout and "missing" in done.stdout and "not pinned" in done.stdout
    assert "1 missing: python -m conformance models fetch NAME" in done.stdout.replace("13 missing", "1 missing")


def test_fetching_records_the_commit_and_the_hash_of_every_file(site: Site, hub: Hub) -> None:
    done = site.models("fetch", NAME, **hub_site.online(hub))
    assert done.returncode == 0, done.stderr
    entry = site.lock[NAME]
    assert (entry["hub"], entry["revision"], entry["folder"]) == (HUB, COMMIT, "")
    assert set(entry["files"]) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert entry["files"]["config.json"]["size"] == len(hub.files["config.json"])
    assert (row(site)["where"], row(site)["revision"], row(site)["pinned_by"]) == ("cached", COMMIT, "lock")
    assert site.models("verify").returncode == 0


def test_pickles_code_and_folders_are_not_fetched(site: Site, hub: Hub) -> None:
    for name in ("pytorch_model.bin", "vocab.pkl", "modeling.py", "onnx/model.safetensors", "README.md"):
        hub.files[name] = b"nothing that anybody should load"
    done = site.models("fetch", NAME, **hub_site.online(hub))
    assert done.returncode == 0, done.stderr
    assert {name for name, _ in hub.asked} == {"config.json", "tokenizer.json", "model.safetensors"}


def test_code_is_fetched_only_for_a_model_that_is_pinned_and_trusted(site: Site, hub: Hub) -> None:
    trusted = f'hub = "{HUB}"\nrevision = "{COMMIT}"\ntrust_remote_code = true'
    site.catalogue.write_text(hub_site.MODELS.replace(f'hub = "{HUB}"', trusted))
    hub.files["modeling.py"] = b"# read by somebody\n"
    assert site.models("fetch", NAME, **hub_site.online(hub)).returncode == 0
    assert "modeling.py" in site.lock[NAME]["files"]


def test_a_repository_of_pickles_only_is_refused_before_anything_is_fetched(site: Site, hub: Hub) -> None:
    hub.files["pytorch_model.bin"] = hub.files.pop("model.safetensors")
    done = site.models("fetch", NAME, **hub_site.online(hub))
    assert (done.returncode, hub.asked) == (6, [])
    assert "only pytorch_model.bin, which can run code when loaded" in done.stderr


def test_an_interrupted_fetch_leaves_no_record_and_is_gone_on_with(site: Site, hub: Hub) -> None:
    content = bytearray(hub.files["model.safetensors"])
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["weight"] = {"dtype": "F32", "shape": [1 << 20], "data_offsets": [0, 4 << 20]}
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + bytes(4 << 20)
    hub.files["model.safetensors"] = whole
    hub.cut["model.safetensors"] = 1 << 20
    done = site.models("fetch", NAME, **hub_site.online(hub))
    assert done.returncode == 6, done.stdout
    assert not (site.home / "models.lock.json").exists()
    assert "the transfer broke off" in done.stderr and "goes on with the others" in done.stderr
    assert row(site)["where"] == "missing"
    hub.cut.clear()
    hub.asked.clear()
    done = site.models("fetch", NAME, **hub_site.online(hub))
    assert done.returncode == 0, done.stderr
    assert site.lock[NAME]["files"]["model.safetensors"]["size"] == len(whole)
    assert {name for name, _ in hub.asked} == {"model.safetensors"}, "what had come whole was fetched again"


def test_what_a_network_answers_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("the hub cannot be reached (502 \x1b]0;owned\x07\x1b[2J)")
    assert capsys.readouterr().err == "conformance: the hub cannot be reached (502 ]0;owned[2J)\n"


def test_without_a_network_the_cache_serves(site: Site) -> None:
    hub_site.fill_cache(site)
    assert (row(site)["where"], row(site)["pinned_by"]) == ("cached", None)
    assert site.models("fetch", NAME).returncode == 0
    assert site.lock[NAME]["revision"] == COMMIT


def test_where_the_hub_cannot_be_reached_the_cache_serves_too(site: Site) -> None:
    hub_site.fill_cache(site)
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    done = site.models("fetch", NAME, **unreachable)
    assert done.returncode == 0, done.stderr
    assert "the hub cannot be reached" in done.stderr


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}, "the hub cannot be reached"),
    ],
)
def test_without_network_and_cache_the_ways_out_are_named(site: Site, environment: dict[str, str], why: str) -> None:
    done = site.models("fetch", NAME, **environment)
    assert done.returncode == 6
    for part in (why, "does not have big-colours (zenith/big-colours)", "models export", "--from"):
        assert part in done.stderr


def test_a_repository_that_is_not_there_is_said(site: Site, hub: Hub) -> None:
    site.catalogue.write_text(hub_site.MODELS.replace(HUB, "zenith/no-colours"))
    done = site.models("fetch", NAME, **hub_site.online(hub))
    assert (done.returncode, "correct `hub` in the catalogue" in done.stderr) == (6, True), done.stderr


def test_a_full_disk_is_said_before_anything_is_fetched(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    from conformance.catalogue import load_catalogue
    from conformance.models import fetch

    monkeypatch.setattr(places, "hub_cache", lambda: tmp_path / "hf")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))  # type: ignore[attr-defined]
    model = load_catalogue([site.catalogue]).named(NAME)
    with pytest.raises(fetch.FetchError, match=r"are to be fetched to .* GiB free .*HF_HOME to another disk"):
        fetch._download(None, model, COMMIT, {"model.safetensors": 10**9})


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_is_missing_from_the_cache_is_named(site: Site, file: str) -> None:
    snapshot = hub_site.fill_cache(site)
    (snapshot / file).unlink()
    assert row(site)["where"] == "incomplete"
    done = site.models("fetch", NAME)
    assert done.returncode == 6 and str(snapshot) in done.stderr
    assert not (site.home / "models.lock.json").exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_of_the_cache_that_is_not_what_the_hub_sent_is_refused(site: Site, file: str) -> None:
    snapshot = hub_site.fill_cache(site)
    content = bytearray((snapshot / file).read_bytes())
    content[-2] ^= 1
    hub_site.rewrite(snapshot / file, bytes(content))
    done = site.models("fetch", NAME)
    assert done.returncode == 6
    assert str(snapshot / file) in done.stderr


def test_what_is_not_here_is_not_called_altered(site: Site) -> None:
    done = site.models("verify", NAME)
    assert (done.returncode, "it was not fetched yet" in done.stdout) == (6, True), done.stdout


def test_verify_names_what_was_altered_added_and_taken_away(site: Site) -> None:
    snapshot = hub_site.fill_cache(site)
    assert site.models("fetch", NAME).returncode == 0
    content = bytearray((snapshot / "model.safetensors").read_bytes())
    content[-1] ^= 1
    hub_site.rewrite(snapshot / "model.safetensors", bytes(content))
    (snapshot / "vocab.txt").write_text("more")
    done = site.models("verify", NAME)
    assert done.returncode == 1
    assert "model.safetensors: altered since it was fetched" in done.stdout
    assert "vocab.txt: was not there when the model was fetched" in done.stdout
    (snapshot / "config.json").unlink()
    done = site.models("verify", NAME)
    assert (done.returncode, "config.json is missing" in done.stdout) == (1, True)
    assert row(site)["where"] == "incomplete"


def test_a_commit_whose_files_changed_is_not_recorded_again(site: Site) -> None:
    snapshot = hub_site.fill_cache(site)
    assert site.models("fetch", NAME).returncode == 0
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").write_text(json.dumps({"vocab_size": 256, "max_position_embeddings": 32}))
    done = site.models("fetch", NAME)
    assert done.returncode == 6
    assert "config.json has the sha256" in done.stderr and "when it was fetched before" in done.stderr


def write_sizes(site: Site, folder: Path, **other: int) -> None:
    """Sizes of a BERT in the catalogue, and `other` ones in a model's folder."""
    sizes = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 64, "type_vocab_size": 2}
    (site.package / "zenith" / "big.json").write_text(json.dumps(sizes))
    hub = f'hub = "{HUB}"'
    site.catalogue.write_text(hub_site.MODELS.replace(hub, f'{hub}\nconfiguration = "big.json"'))
    (folder / "config.json").write_text(json.dumps({**sizes, **other}))


def test_a_folder_of_another_model_is_refused_once_with_the_sizes_here_and_there(site: Site, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "disk" / NAME)
    write_sizes(site, folder, num_hidden_layers=3, hidden_size=32)
    done = site.models("fetch", NAME, "--from", folder)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (6, "", 1), done.stderr
    assert "holds another model" in done.stderr and "layers is 3, but should be 2" in done.stderr
    assert "hidden is 32, but should be 64" in done.stderr
    assert not (site.home / "models.lock.json").exists()
    write_sizes(site, folder)
    assert site.models("fetch", NAME, "--from", folder).returncode == 0


def test_a_record_is_replaced_only_where_that_is_asked_for(site: Site, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "disk" / NAME)
    fetch = ("fetch", NAME, "--from", folder)
    assert site.models(*fetch).returncode == 0
    before = site.lock
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    done = site.models(*fetch)
    assert (done.returncode, site.lock) == (6, before)
    assert "model.safetensors has the sha256" in done.stderr and "give --replace" in done.stderr
    assert site.models(*fetch, "--replace").returncode == 0
    assert site.lock != before
    assert site.models("verify", NAME).returncode == 0


def test_verify_never_advises_to_delete_a_file_of_the_users_own_folder(site: Site, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "disk" / NAME)
    assert site.models("fetch", NAME, "--from", folder).returncode == 0
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    (folder / "vocab.txt").write_text("more")
    done = site.models("verify", NAME)
    assert done.returncode == 1
    assert "delete" not in done.stdout and f"models fetch {NAME} --from FOLDER" in done.stdout
    assert f"--replace --from {folder}" in done.stdout
    (folder / "model.safetensors").unlink()
    assert "--from FOLDER" in site.models().stdout


def test_verify_of_what_was_never_fetched_is_incomplete_and_of_nothing_executes_nothing(site: Site) -> None:
    assert site.models("verify", NAME).returncode == 6
    done = site.models("verify")
    assert (done.returncode, "nothing was fetched" in done.stdout) == (5, True)
    hub_site.fill_cache(site)
    done = site.models("verify", NAME)
    assert (done.returncode, "nothing was recorded" in done.stdout) == (6, True), "it is there, but not by a fetch"


def test_pins_that_cannot_be_written_are_said_and_incomplete(site: Site, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "disk" / NAME)
    before = site.catalogue.read_text()
    done = site.models("fetch", NAME, "--from", folder, "--write-pins", site.catalogue)
    assert (done.returncode, site.catalogue.read_text()) == (6, before)
    assert f"nothing was written for {NAME}: nobody knows of which commit" in done.stderr


@pytest.mark.parametrize("environment", [{}, {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}])
def test_what_hinders_every_fetch_is_told_once(site: Site, environment: dict[str, str]) -> None:
    _, _, big = hub_site.MODELS.partition("[models.big-colours]")
    site.catalogue.write_text(hub_site.MODELS + "\n[models.huge-colours]" + big.replace("big", "huge"))
    done = site.models("fetch", NAME, "huge-colours", **environment)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (6, 2 if environment else 1), done.stderr
    assert "does not have big-colours (zenith/big-colours), huge-colours (zenith/huge-colours); " in lines[-1]


def test_a_folder_serves_where_it_lies(site: Site, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "disk" / NAME)
    assert site.models("fetch", NAME, "--from", tmp_path / "disk").returncode == 0
    assert (row(site)["where"], row(site)["folder"]) == ("folder", str(folder))
    assert row(site)["pinned_by"] is None, "nobody knows its commit"
    assert site.models("fetch", NAME, "--from", folder).returncode == 0, "the folder itself will do for one model"


def test_a_folder_that_the_hubs_command_downloaded_knows_its_commit(site: Site, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "disk" / "big-colours")
    notes = folder / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    (notes / "config.json.metadata").write_text(f"{COMMIT}\netag\n1.0\n")
    assert site.models("fetch", NAME, "--from", folder).returncode == 0
    assert row(site)["revision"] == COMMIT


def test_another_machines_cache_serves_as_a_folder(site: Site, tmp_path: Path) -> None:
    hub_site.fill_cache(site)
    (tmp_path / "hf").rename(tmp_path / "mounted")
    assert site.models("fetch", NAME, "--from", tmp_path / "mounted").returncode == 0
    assert (row(site)["where"], row(site)["revision"]) == ("folder", COMMIT)


def test_a_folder_of_another_commit_than_the_pinned_one_is_refused(site: Site, tmp_path: Path) -> None:
    site.catalogue.write_text(hub_site.MODELS.replace(f'hub = "{HUB}"', f'hub = "{HUB}"\nrevision = "{"f" * 40}"'))
    hub_site.model(tmp_path / "disk" / NAME)
    done = site.models("fetch", NAME, "--from", tmp_path / "disk")
    assert (done.returncode, "pins it to ffff" in done.stderr) == (6, True)


def test_pins_are_written_into_the_catalogue_and_nothing_else_changes(site: Site) -> None:
    hub_site.fill_cache(site)
    before = site.catalogue.read_text()
    done = site.models("fetch", NAME, "--write-pins", site.catalogue)
    assert done.returncode == 0, done.stderr
    after = site.catalogue.read_text()
    assert after.replace(f'revision = "{COMMIT}"\n', "") == before
    assert row(site)["pinned_by"] == "catalogue"
    assert site.models("fetch", NAME, "--write-pins", site.catalogue).returncode == 0
    assert site.catalogue.read_text() == after


def test_pins_keep_the_ends_of_lines_as_they_are(tmp_path: Path) -> None:
    catalogue = tmp_path / "models.toml"
    before = hub_site.MODELS.replace("\n", "\r\n").encode()
    catalogue.write_bytes(before)
    assert pins.write_pins(catalogue, {NAME: COMMIT}) == [NAME]
    assert catalogue.read_bytes().replace(f'revision = "{COMMIT}"\r\n'.encode(), b"") == before
    catalogue.write_text("models = [3]\n")
    with pytest.raises(UsageError, match="no catalogue"):
        pins.write_pins(catalogue, {NAME: COMMIT})


def test_a_pin_is_not_changed_behind_anybodys_back(site: Site, tmp_path: Path) -> None:
    hub_site.fill_cache(site)
    other = tmp_path / "models.toml"
    other.write_text(hub_site.MODELS.replace(f'hub = "{HUB}"', f'hub = "{HUB}"\nrevision = "{"f" * 40}"'))
    done = site.models("fetch", NAME, "--write-pins", other)
    assert (done.returncode, "change it by hand" in done.stderr) == (4, True)
    done = site.models("fetch", NAME, "--write-pins", tmp_path / "nowhere.toml")
    assert (done.returncode, "no catalogue" in done.stderr) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "big-colour"], "did you mean 'big-colours'?"),
        (["fetch", "tiny-colours"], "tiny-colours is embedded: it comes with the package"),
        (["fetch"], "name models, or --run NAME"),
        (["fetsch"], "unknown action 'fetsch'; did you mean 'fetch'?"),
        (["verify", NAME, "--from", "x"], "--from belongs to `models fetch`"),
        (["verify", NAME, "--replace"], "--replace belongs to `models fetch`"),
        (["export"], "needs a file"),
        (["fetch", "--run", "nightly"], "name a backend"),
        (["fetch", "--run", "nightlie", "--backend", "cpu"], "did you mean 'nightly'?"),
    ],
)
def test_a_usage_error_says_what_would_be_right(site: Site, arguments: list[str], message: str) -> None:
    done = site.models(*arguments)
    assert (done.returncode, message in done.stderr) == (4, True), done.stderr


def test_a_folder_that_cannot_hold_records_is_said(site: Site, tmp_path: Path) -> None:
    hub_site.fill_cache(site)
    (tmp_path / "file").touch()
    done = site.models("fetch", NAME, CONFORMANCE_MODELS=str(tmp_path / "file"))
    assert (done.returncode, "set CONFORMANCE_MODELS to a folder" in done.stderr) == (4, True), done.stderr


@pytest.mark.parametrize("folder", ["/" + "x" * 5000, "/x\0y", "/proc/1/root/models"])
def test_a_recorded_folder_that_nobody_can_look_into_is_missing(site: Site, folder: str) -> None:
    entry = {"hub": HUB, "revision": "", "folder": folder, "digest": "0" * 64, "files": {}}
    site.home.mkdir()
    (site.home / "models.lock.json").write_text(json.dumps({"version": 1, "models": {NAME: entry}}))
    assert row(site)["where"] == "missing"


def test_a_cache_that_this_user_may_not_look_into_is_no_reason_not_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(Path, "is_dir", denied)
    model = Model(NAME, ("colours",), "full", tmp_path, "ToyColours", hub=HUB, revision=COMMIT)
    place = places.locate(model, {})
    assert place.where == "missing"
    assert "cannot be read (Permission denied)" in place.problem


def test_a_damaged_record_is_named(site: Site) -> None:
    site.home.mkdir()
    for text in (
        "{",
        "[]",
        "[" * 100_000,
        '{"version": 9, "models": {}}',
        '{"version": 1, "models": {"a": {"hub": 1}}}',
    ):
        (site.home / "models.lock.json").write_text(text)
        done = site.models("list")
        assert (done.returncode, "models.lock.json" in done.stderr, "delete it" in done.stderr) == (4, True, True)
