"""Redaction: what a document tells of the machine and its user, beyond the facts, is taken out before it is written."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from conformance.results.plain import to_plain
from conformance.verdict import Verdict

USER, HOST, SECRET, EMAIL = "<user>", "<host>", "<secret>", "<email>"

_SECRET_NAMES = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SHORTEST_NAME = 4  # characters: a shorter name turns up inside honest text too often
_SHORTEST_SECRET = 6
# Words that a run's record is made of: as a user's or a machine's name they tell nothing, and it needs them.
_COMMON_WORDS = (
    "localhost localdomain root user users admin administrator runner ubuntu debian fedora centos linux "
    "docker container jenkins gitlab github build builder builds test tests tester testing guest nobody "
    "default host server worker node machine desktop laptop home work data model models engine backend device "
    "case cases suite suites target profile plan reference yardstick kernel kernels intel nvidia cuda rocm "
    "torch python transformers vllm sglang ipex openai eager sdpa triton float16 bfloat16 float32 float64 "
    "embedding rerank classification reward generation started finished conformance none true false null "
    "local remote main master release nightly presubmit"
)
_COMMON = frozenset(_COMMON_WORDS.split()) | {str(verdict).lower() for verdict in Verdict}

# A token that follows a letter or digit is a part of something else; hf_ options (hf_overrides) have no 16 of these.
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|gh[a-z]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}"
    r"|sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}|glpat-[A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{12,})"
)
_BEARER = re.compile(r"(?<![A-Za-z0-9])(Bearer\s{1,8})[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_URL_LOGIN = re.compile(r"(?<=://)[^\s/@:]{1,256}(?::[^\s/@]{0,256})?@")
_EMAIL = re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+")
_PATH = re.compile(
    r"(?:(?<=file://)|(?<![\w/.~%\\-])(?<!<user>)(?<!<host>)(?<!<secret>)(?<!<email>))(?:/(?![/\s])|[A-Za-z]:\\)[^\s\"'`<>|:;,()\[\]{}*?\x00-\x1f]+",
)
_SEPARATORS = re.compile(r"[/\\]+")
_HOMES = ("home", "Users")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


class Redactor:
    """Takes names, secrets and paths out of texts. Calling it gives a redacted copy of any JSON-like value.

    Applying it twice changes nothing more. Numbers and the keys of closed mappings stay as they are.
    """

    def __init__(
        self,
        *,
        user: str = "",
        host: str = "",
        home: str = "",
        secrets: Iterable[str] = (),
        keep: Sequence[str] = (),
    ) -> None:
        """`keep` are folders (the output's, the models') whose paths stay whole but for the home folder in them."""
        self._home = home.rstrip("/\\") if len(_parts(home)) >= 1 else ""
        self._keep = tuple(folder.rstrip("/\\") for folder in keep if _parts(folder))
        self._substitutions: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = []
        hidden = sorted({text for text in secrets if _is_secret(text)}, key=len, reverse=True)
        if hidden:
            self._substitutions.append((re.compile("|".join(map(re.escape, hidden))), SECRET))
        self._substitutions += [
            (_TOKENS, SECRET),
            (_BEARER, rf"\1{SECRET}"),
            (_URL_LOGIN, f"{SECRET}@"),
            (_EMAIL, EMAIL),
            (_PATH, self._shorten),
        ]
        if self._home:
            # For homes in places where no path begins, or with characters that end one above.
            self._substitutions.append((re.compile(re.escape(self._home) + r"(?![A-Za-z0-9_-])"), "~"))
        for names, mark in (((host, host.partition(".")[0]), HOST), ((user,), USER)):
            for name in sorted({name for name in names if _is_telling(name)}, key=len, reverse=True):
                # Beside letters and digits it is another word; those of a case id's %20 do not count.
                word = rf"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-F]{{2}})){re.escape(name)}(?![A-Za-z0-9])"
                self._substitutions.append((re.compile(word, re.IGNORECASE), mark))

    @classmethod
    def of_this_machine(cls, keep: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> Redactor:
        """The redactor for the user, the host and the environment of this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container's user without an entry
            user = ""
        return cls(
            user=user,
            host=platform.node(),
            home=os.path.expanduser("~"),  # noqa: PTH111, Path.home() raises where there is none
            secrets=[value for name, value in environment.items() if _SECRET_NAMES.search(name)],
            keep=keep,
        )

    def __call__(self, value: Any) -> Any:
        """A copy of `value` with JSON types only (`to_plain`), every text in it redacted."""
        return self._redacted(to_plain(value))

    def text(self, text: str) -> str:
        """`text` redacted."""
        for pattern, replacement in self._substitutions:
            text = pattern.sub(replacement, text)
        return text

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._redacted(item) for item in value]
        if isinstance(value, dict):
            return {self._key(key): self._redacted(item) for key, item in value.items()}
        return value

    def _key(self, key: str) -> str:
        # Keys that are identifiers are ours (a user called "cases" must not break the document).
        return key if _IDENTIFIER.fullmatch(key) else self.text(key)

    def _shorten(self, match: re.Match[str]) -> str:
        path = match.group()
        if any(_inside(path, folder) for folder in self._keep):
            return path
        parts = _parts(path)
        if self._home and _inside(path, self._home):
            owned = _parts(path[len(self._home) :])
            return "/".join(["~", *owned] if len(owned) < 2 else ["...", *owned[-2:]])
        drive = re.match(r"[A-Za-z]:", path) is not None
        if parts[drive : drive + 1] in ([name] for name in _HOMES):  # another user's
            return "/".join(["...", *parts[drive + 2 :][-2:]])
        return path if len(parts) <= 2 else "/".join(["...", *parts[-2:]])


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith((f"{folder}/", f"{folder}\\"))


def _parts(path: str) -> list[str]:
    return [part for part in _SEPARATORS.split(path) if part]


def _is_telling(name: str) -> bool:
    return len(name) >= _SHORTEST_NAME and any(c.isalpha() for c in name) and name.lower() not in _COMMON


def _is_secret(text: str) -> bool:
    return len(text.strip()) >= _SHORTEST_SECRET and text.lower() not in _COMMON
