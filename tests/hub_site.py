"""A vendor with one full-size model, the hub's cache as its library lays it out, and a hub of one repository."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zenith_site

from conformance.models.places import repository_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = "zenith/big-colours"
NAME = "big-colours"

MODELS = """
[models.tiny-colours]
roles = ["colours"]
tier = "embedded"
folder = "checkpoints/tiny-colours"
architecture = "ToyColours"
parameters = { max_tokens = 64 }

[models.big-colours]
roles = ["colours"]
tier = "full"
hub = "zenith/big-colours"
architecture = "ToyColours"
parameters = { max_tokens = 64 }
"""


@dataclass(frozen=True)
class Site:
    """Where the vendor's package, the hub's cache, the records and the stored references lie."""

    root: Path

    @property
    def package(self) -> Path:
        return self.root / "site"

    @property
    def cache(self) -> Path:
        return self.root / "hf" / "hub"

    @property
    def home(self) -> Path:
        return self.root / "models"

    @property
    def catalogue(self) -> Path:
        return self.package / "zenith" / "models.toml"

    @property
    def snapshot(self) -> Path:
        return repository_folder(self.cache, HUB) / "snapshots" / COMMIT

    @property
    def lock(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "models.lock.json").read_text())
        return found["models"]  # type: ignore[no-any-return]

    def models(self, *arguments: Any, **more: str) -> subprocess.CompletedProcess[str]:
        """`python -m conformance models ...` without a network, unless `more` says otherwise."""
        return zenith_site.conformance(self.package, "models", *arguments, **{**self.environment(), **more})

    def environment(self) -> dict[str, str]:
        return {
            "HF_HOME": str(self.root / "hf"),
            "HF_HUB_OFFLINE": "1",
            "CONFORMANCE_MODELS": str(self.home),
            "CONFORMANCE_CACHE": str(self.root / "store"),
            "PYTHONPATH": str(self.package),
        }

    def run(self, *arguments: Any, **more: str) -> zenith_site.Ran:
        """The vendor's suite on the full-size model as well."""
        folder = self.root / "run"
        return zenith_site.run_plain(
            self.package, folder, "--tier", "full", *arguments, **{**self.environment(), **more}
        )


def install(root: Path) -> Site:
    """The vendor's package; its torch stand-in is left out, so that the hub's library can be imported."""
    site = Site(root)
    zenith_site.install(site.package)
    site.catalogue.write_text(MODELS)
    return site


def model(folder: Path) -> Path:
    """A model folder to put somewhere."""
    zenith_site.write_model(folder)
    return folder


def fill_cache(site: Site, commit: str = COMMIT) -> Path:
    """The cache after a download: blobs named by their hash, a snapshot of links, and the branch's commit."""
    repository = repository_folder(site.cache, HUB)
    source = model(site.root / "source") if not (site.root / "source").exists() else site.root / "source"
    snapshot = repository / "snapshots" / commit
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        content = file.read_bytes()
        large = file.suffix == ".safetensors"
        name = hashlib.sha256(content).hexdigest() if large else git_hash(content)
        (repository / "blobs" / name).write_bytes(content)
        (snapshot / file.name).symlink_to(Path("../../blobs") / name)
    (repository / "refs" / "main").write_text(commit)
    return snapshot


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Hub:
    """What a hub of one repository answers. `cut` breaks off the transfer of a file after so many bytes, each time."""

    files: dict[str, bytes]
    commit: str = COMMIT
    cut: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path and range of every download
    url: str = ""


@contextmanager
def hub_of(folder: Path) -> Iterator[Hub]:
    """Serve the files of `folder` as the repository, on a port of this machine."""
    hub = Hub({file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()})

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            if path.startswith(f"/api/models/{HUB}/tree/"):
                listed = [_listed(name, content) for name, content in hub.files.items()]
                return self._json(listed)
            if path.startswith(f"/api/models/{HUB}"):
                return self._json({"id": HUB, "sha": hub.commit, "siblings": []})
            prefix = f"/{HUB}/resolve/{hub.commit}/"
            name = path.removeprefix(prefix)
            if not path.startswith(prefix) or name not in hub.files:
                return self._json({"error": "nothing here"}, 404, {"X-Error-Code": "RepoNotFound"})
            return self._file(name, hub.files[name], body)

        def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            for key, each in {
                "Content-Length": str(len(content)),
                "X-Repo-Commit": hub.commit,
                **(headers or {}),
            }.items():
                self.send_header(key, each)
            self.end_headers()
            self.wfile.write(content)

        def _file(self, name: str, content: bytes, body: bool) -> None:
            wanted = self.headers.get("Range")
            start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted and body else 0
            part = content[start:]
            self.send_response(206 if start else 200)
            large = name.endswith(".safetensors")
            etag = hashlib.sha256(content).hexdigest() if large else git_hash(content)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Linked-Etag", f'"{etag}"')
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("X-Repo-Commit", hub.commit)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if body:
                hub.asked.append((name, wanted or ""))
                self.wfile.write(part[: hub.cut.get(name, len(part))])
                if name in hub.cut:
                    self.wfile.flush()
                    self.close_connection = True

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def _listed(name: str, content: bytes) -> dict[str, Any]:
    found = {"type": "file", "path": name, "size": len(content), "oid": git_hash(content)}
    if name.endswith(".safetensors"):
        found["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 100}
    return found


def online(hub: Hub) -> dict[str, str]:
    """What makes the hub's library ask that hub."""
    return {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "2"}


def rewrite(path: Path, content: bytes) -> None:
    """Replace what a link of the cache leads to."""
    target = path.resolve()
    target.chmod(0o644)
    target.write_bytes(content)
