"""Models travel to a site without a network; an archive that is not what it says changes nothing there."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hub_site
import pytest
from hub_site import COMMIT, NAME

from conformance import checkpoint
from conformance.catalogue import Model
from conformance.models.contents import ArchiveError
from conformance.models.exporting import export
from conformance.models.importing import import_archive
from conformance.models.lock import Entry, FileRecord, sha256_of
from conformance.models.places import Place
from conformance.reference.store import Identity

HERE = Model(NAME, ("colours",), "full", Path("/nowhere"), "ToyColours", hub=hub_site.HUB)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONFORMANCE_MODELS", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of one model and one stored set of references."""
    folder = hub_site.model(tmp_path / "model")
    files = {file.name: FileRecord(file.stat().st_size, sha256_of(file)) for file in folder.iterdir()}
    entry = Entry(hub_site.HUB, COMMIT, checkpoint.digest(folder), files)
    identity = Identity(entry.digest, "a" * 64, "b" * 64, {"torch": "2"}, "TOY")
    for name, weights in ((identity.key, identity.weights), ("c" * 64, "of another model")):
        stored = tmp_path / "store" / name
        stored.mkdir(parents=True)
        (stored / "manifest.json").write_text(json.dumps({"identity": {**identity.to_json(), "weights": weights}}))
    export(tmp_path / "models.tar", {NAME: Place("folder", folder, COMMIT, "", entry)}, tmp_path / "store")
    return tmp_path / "models.tar"


def imported(archive: Path, store: Path, model: Model = HERE, lock: dict[str, Entry] | None = None) -> Any:
    return import_archive(archive, {model.name: model}, lock or {}, store)


def refused(archive: Path, home: Path, store: Path, message: str, **more: Any) -> None:
    with pytest.raises(ArchiveError, match=message):
        imported(archive, store, **more)
    assert not (home / NAME).exists()
    assert not (home / "models.lock.json").exists()
    assert list(home.glob(".import-*")) == []
    assert not store.exists() or list(store.iterdir()) == []


def test_what_was_exported_arrives_with_its_records_and_references(archive: Path, home: Path, tmp_path: Path) -> None:
    contents = imported(archive, tmp_path / "there")
    assert checkpoint.digest(home / NAME) == contents.models[NAME].digest
    assert json.loads((home / "models.lock.json").read_text())["models"][NAME]["revision"] == COMMIT
    assert len(list((tmp_path / "there").iterdir())) == 1, "the references of this model, and no other's"
    imported(archive, tmp_path / "there")  # again: the model is replaced, and nothing is left over
    assert sorted(file.name for file in home.iterdir()) == [".lock", NAME, "models.lock.json"]


def test_the_command_line_moves_a_model_from_one_site_to_another(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    here, there = (hub_site.install(tmp_path / name) for name in ("here", "there"))
    hub_site.fill_cache(here)
    assert here.models("fetch", NAME).returncode == 0
    done = here.models("export", tmp_path / "models.tar", NAME)
    assert done.returncode == 0, done.stderr
    done = there.models("import", tmp_path / "models.tar")
    assert done.returncode == 0, done.stderr
    assert there.models("verify", NAME).returncode == 0
    row = json.loads(there.models("list", NAME, "--json").stdout)[0]
    assert (row["where"], row["revision"], row["folder"]) == ("folder", COMMIT, str(there.home / NAME))


def test_an_altered_model_is_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    site = hub_site.install(tmp_path)
    snapshot = hub_site.fill_cache(site)
    assert site.models("fetch", NAME).returncode == 0
    hub_site.rewrite(snapshot / "tokenizer.json", (snapshot / "tokenizer.json").read_bytes().replace(b"t0", b"u0"))
    done = site.models("export", tmp_path / "models.tar", NAME)
    assert (done.returncode, "altered since it was fetched" in done.stderr) == (6, True), done.stderr
    assert not (tmp_path / "models.tar").exists()


Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


def changed(archive: Path, change: Change) -> Path:
    """The archive with its members, in order, changed."""
    with tarfile.open(archive) as source:
        members = [(member, source.extractfile(member).read()) for member in source]  # type: ignore[union-attr]
    change(members)
    path = archive.with_name("changed.tar")
    with tarfile.open(path, "w") as target:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            target.addfile(member, io.BytesIO(content))
    return path


def relisted(members: list[tuple[tarfile.TarInfo, bytes]], change: Callable[[dict[str, Any]], None]) -> None:
    listed = json.loads(members[0][1])
    change(listed)
    members[0] = (members[0][0], json.dumps(listed).encode())


def _append(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Change:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        members.append((member, b""))

    return change


def _replace(kind: bytes, link: str = "/etc/passwd") -> Change:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members[-1][0].type, members[-1][0].linkname = kind, link

    return change


def _rename(old: str, new: str) -> Change:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        def listing(listed: dict[str, Any]) -> None:
            files = listed["models"][NAME]["files"]
            files[new] = files.pop(old)

        relisted(members, listing)
        for member, _ in members:
            if member.name.endswith(f"/{old}"):
                member.name = f"models/{NAME}/{new}"

    return change


def _model_called(name: str) -> Change:
    return lambda members: relisted(members, lambda listed: listed["models"].update({name: listed["models"].pop(NAME)}))


def _flip(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    member, content = members[2]
    members[2] = (member, content[:-1] + bytes([content[-1] ^ 1]))


def _relist_digest(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    relisted(members, lambda listed: listed["models"][NAME].update(digest="d" * 64))


HOSTILE: dict[str, tuple[Change, str]] = {
    "absolute": (_append("/tmp/escaped"), "does not list it"),
    "upwards": (_append("models/../../escaped"), "does not list it"),
    "listed upwards": (_rename("config.json", "../../escaped"), "is no file's name"),
    "listed absolute": (_rename("config.json", "/tmp/escaped"), "is no file's name"),
    "listed in a folder": (_rename("config.json", "a/config.json"), "is no file's name"),
    "hidden": (_rename("config.json", ".bashrc"), "is no file's name"),
    "model upwards": (_model_called(".."), "is no model's name"),
    "model absolute": (_model_called("/tmp/escaped"), "is no model's name"),
    "model unknown": (_model_called("large-colours"), "unknown model 'large-colours'"),
    "link": (_replace(tarfile.SYMTYPE), "is no plain file"),
    "hard link": (_replace(tarfile.LNKTYPE), "is no plain file"),
    "device": (_replace(tarfile.CHRTYPE), "is no plain file"),
    "pipe": (_replace(tarfile.FIFOTYPE), "is no plain file"),
    "pickle": (_rename("tokenizer.json", "vocab.pkl"), "which no run may load"),
    "code": (_rename("tokenizer.json", "modeling.py"), "which no run may load"),
    "altered": (_flip, "is altered"),
    "cut": (lambda members: members.pop() and None, "listed, but not there"),
    "twice": (lambda members: members.append(members[-1]), "twice"),
    "longer": (lambda members: members.__setitem__(2, (members[2][0], members[2][1] + b"x")), "no plain file of"),
    "another digest": (_relist_digest, "is not the model of its record|is of none"),
    "no list": (lambda members: members.pop(0) and None, "does not begin with contents.json"),
    "list no JSON": (lambda members: members.__setitem__(0, (members[0][0], b"{")), "contents.json: "),
    "list of another format": (lambda members: relisted(members, lambda listed: listed.update(format="9")), "format"),
    "deep list": (lambda members: members.__setitem__(0, (members[0][0], b"[" * 100_000)), "contents.json: "),
    "size that no disk has": (
        lambda members: relisted(
            members, lambda listed: listed["models"][NAME]["files"]["config.json"].update(size=10**400)
        ),
        "has the size",
    ),
    "header of a sparse file that is none": (
        lambda members: members[1][0].pax_headers.update({"GNU.sparse.map": "x", "GNU.sparse.size": "y"}),
        "no tar archive, or damaged",
    ),
    "reference's key": (
        lambda members: relisted(members, lambda listed: listed.update(references={"..": {}})),
        "no reference's key",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_changes_nothing(archive: Path, home: Path, tmp_path: Path, name: str) -> None:
    change, message = HOSTILE[name]
    refused(changed(archive, change), home, tmp_path / "there", message)
    assert not (tmp_path / "escaped").exists() and not Path("/tmp/escaped").exists()


def test_a_reference_of_another_model_is_refused(archive: Path, home: Path, tmp_path: Path) -> None:
    other = Identity("e" * 64, "a" * 64, "b" * 64, {"torch": "2"}, "TOY")
    manifest = json.dumps({"identity": other.to_json()}).encode()

    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        import hashlib

        record = {"manifest.json": {"size": len(manifest), "sha256": hashlib.sha256(manifest).hexdigest()}}
        relisted(members, lambda listed: listed.update(references={other.key: record}))
        members.pop()
        members.append((tarfile.TarInfo(f"references/{other.key}/manifest.json"), manifest))

    refused(changed(archive, change), home, tmp_path / "there", "is of none of the archive's models")


def test_a_list_that_is_too_long_is_not_read(archive: Path, home: Path, tmp_path: Path) -> None:
    change: Change = lambda members: members.__setitem__(0, (members[0][0], b" " * (17 << 20)))  # noqa: E731
    refused(changed(archive, change), home, tmp_path / "there", "more than the")


def test_what_is_no_archive_is_refused(home: Path, tmp_path: Path) -> None:
    for content in (b"", b"nothing", bytes(10_240)):
        (tmp_path / "models.tar").write_bytes(content)
        refused(tmp_path / "models.tar", home, tmp_path / "there", "no tar archive|does not begin")
    refused(tmp_path / "nowhere.tar", home, tmp_path / "there", "cannot be imported: No such file")


def test_an_archive_that_ends_early_is_refused(archive: Path, home: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    for share in (0.2, 0.5, 0.8):
        archive.write_bytes(whole[: int(share * len(whole))])
        refused(archive, home, tmp_path / "there", ".")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (replace(HERE, hub="other/big-colours"), "but other/big-colours in the catalogue here"),
        (replace(HERE, revision="f" * 40), "the catalogue pins it to ffff"),
    ],
)
def test_a_model_of_another_origin_is_refused(
    archive: Path, home: Path, tmp_path: Path, model: Model, message: str
) -> None:
    refused(archive, home, tmp_path / "there", message, model=model)


def test_other_files_at_the_same_commit_are_refused(archive: Path, home: Path, tmp_path: Path) -> None:
    mine = Entry(hub_site.HUB, COMMIT, "0" * 64, {"config.json": FileRecord(1, "0" * 64)})
    refused(archive, home, tmp_path / "there", "one side is altered", lock={NAME: mine})


def test_a_full_disk_is_said_before_anything_is_unpacked(
    archive: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))  # type: ignore[attr-defined]
    refused(archive, home, tmp_path / "there", "GiB free .*CONFORMANCE_MODELS")


def test_an_export_that_fails_leaves_no_archive(archive: Path, tmp_path: Path) -> None:
    folder = hub_site.model(tmp_path / "again")
    files = {"config.json": FileRecord(3, "0" * 64)}
    place = Place("folder", folder, COMMIT, "", Entry(hub_site.HUB, COMMIT, "0" * 64, files))
    with pytest.raises(ArchiveError):
        export(tmp_path / "bad.tar", {NAME: place}, tmp_path / "store")
    assert list(tmp_path.glob("*bad.tar*")) == []
