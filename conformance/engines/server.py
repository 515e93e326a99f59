"""A server with an OpenAI-compatible API, as a client sees it: where it is, what it offers, and how it fails.

Every failure has the endpoint in its message. What may pass is tried again, and counted: time-outs, broken
connections, and the statuses of a server that is busy or broken. An API key is taken from the environment; it is
sent, and never written anywhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from conformance.engines.server_schema import Offer
from conformance.names import printable
from conformance.runner import EngineGone, NotSupported, Unavailable

if TYPE_CHECKING:
    pass

RETRIES = 2
"""A request is sent so often again; each time after twice as long, from FIRST_PAUSE_S seconds."""
FIRST_PAUSE_S = 0.5
TIMEOUT_S = 120.0
"""So long a server may send nothing; a whole answer has until the case's deadline."""

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_LINE = 300


class Refused(Exception):
    """The server answered with a status between 400 and 499: it will not do what was asked."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ServerFault(Exception):
    """The server answered, but not with what the endpoint is for: a status of 500 or more, or no right JSON."""


class Server:
    """One server at `url`, which ends where its versioned API begins, as in http://host:8000/v1."""

    def __init__(self, url: str, *, key_variable: str = "OPENAI_API_KEY", timeout_s: float = TIMEOUT_S) -> None:
        """ImportError where the package openai is not installed."""
        import openai

        self.url = url.rstrip("/")
        self.root = self.url.removesuffix("/v1")
        self.key_variable = key_variable
        self._key = os.environ.get(key_variable, "")
        self.timeout_s = timeout_s
        self.counts: Counter[str] = Counter()
        # Its own retries are off: those made here are counted.
        self._client = openai.OpenAI(api_key=self._key or "none", base_url=self.url, timeout=timeout_s, max_retries=0)
        self.offer = Offer()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    def connect(self) -> list[Mapping[str, Any]]:
        """The entries of GET /v1/models, once it is known what the server offers.

        Unavailable where nothing answers there, or something that is no such server.
        """
        try:
            listed = self.get("/v1/models")
        except (EngineGone, ServerFault) as error:
            raise Unavailable(str(error)) from error
        except Refused as error:
            hint = "; an API's URL usually ends in /v1" if error.status == 404 else ""
            if error.status in (401, 403):
                hint = f"; the API key is taken from the environment variable {self.key_variable}"
            raise Unavailable(f"{error}{hint}") from error
        entries = listed.get("data")
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise Unavailable(f"GET {self.address('/v1/models')} should answer a list under 'data'; is the URL right?")
        try:
            self.offer = Offer.of(self.get("/openapi.json"))
        except (EngineGone, Refused, ServerFault):
            self.offer = Offer()  # a server need not describe itself: then calling it shows what it has
        return entries

    def address(self, path: str) -> str:
        """The URL of a path as the server's own description has it, /v1/completions or /tokenize."""
        return self.url + path.removeprefix("/v1") if path.startswith("/v1/") else self.root + path

    def has(self, path: str) -> bool:
        """Whether the path may be there: False only where the server describes itself without it."""
        return self.offer.paths is None or path in self.offer.paths

    def first_of(self, *paths: str) -> str:
        """The first of these paths that the server has. NotSupported, naming them, where it has none."""
        for path in paths:
            if self.has(path):
                return path
        raise NotSupported(f"the server at {self.url} has no {' or '.join(paths)}; its /openapi.json lists neither")

    def get(self, path: str) -> Mapping[str, Any]:
        """The JSON object that a path answers. Raises as `post` does, but for NotSupported."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The JSON object that a path answers to `body`.

        NotSupported where there is no such path, Refused for another status below 500, ServerFault for one above or
        for an answer that is no JSON object, EngineGone where the server cannot be reached any more.
        """
        if not self.has(path):
            raise NotSupported(f"the server at {self.url} has no POST {path}: its /openapi.json does not list it")
        try:
            return self._asked("POST", path, body)
        except Refused as error:
            if error.status in (404, 405, 501) and self.offer.paths is None:
                raise NotSupported(str(error)) from error
            raise

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        where = f"{method} {self.address(path)}"
        self.counts["requests"] += 1
        for attempt in range(1 + RETRIES):
            try:
                return self._object(self._attempt(where, path, body), where)
            except _MayPass as error:
                if attempt == RETRIES:
                    raise error.failure(f"{error}, after {1 + RETRIES} attempts") from error.__cause__
                self.counts["retries"] += 1
                print(f"{error}; asked again ({attempt + 1} of {RETRIES})", file=sys.stderr, flush=True)
                time.sleep(FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("every attempt answers or raises")

    def _attempt(self, where: str, path: str, body: Mapping[str, Any] | None) -> str:
        """What is answered, as text. Raises _MayPass, Refused or ServerFault."""
        import openai

        try:
            if body is None:
                text: str = self._client.get(self.address(path), cast_to=str)
            else:
                text = self._client.post(self.address(path), body=dict(body), cast_to=str)
            return text
        except openai.APITimeoutError as error:
            self.counts["time-outs"] += 1
            raise _MayPass(f"{where}: nothing came for {self.timeout_s:g} s", EngineGone) from error
        except openai.APIConnectionError as error:
            why = error.__cause__ or error
            said = f"{type(why).__name__}: {why}" if str(why) else type(why).__name__
            raise _MayPass(f"{where}: no answer: {self._line(said)}", EngineGone) from None
        except openai.APIStatusError as error:
            message = f"{where}: status {error.status_code}: {self._said(error.response.text) or 'nothing is said'}"
            if error.status_code in _PASSING:
                raise _MayPass(message, ServerFault) from None
            if error.status_code < 500:
                raise Refused(message, error.status_code) from None
            raise ServerFault(message) from None

    def _object(self, text: str, where: str) -> Mapping[str, Any]:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            raise ServerFault(f"{where}: the answer is no JSON: it begins {self._line(text)[:60]!r}") from None
        if not isinstance(answer, dict):
            raise ServerFault(f"{where}: the answer should be a JSON object, not {type(answer).__name__}")
        return answer

    def _said(self, text: str) -> str:
        """What the body of an error says: OpenAI's error.message, FastAPI's detail, or its first line."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            return self._line(text)
        told = body.get("error", body) if isinstance(body, dict) else body
        for key in ("message", "detail"):
            if isinstance(told, dict) and key in told:
                return self._line(str(told[key]))
        return self._line(text)

    def _line(self, text: str) -> str:
        """The first line of what a server says, fit to be printed, without the key, should it send that back."""
        kept = text.replace(self._key, "<secret>") if self._key else text
        lines = [line.strip() for line in printable(kept).splitlines() if line.strip()]
        return lines[0][:_LINE] if lines else ""


class _MayPass(Exception):
    """Something that may be gone the next time; `failure` is what it is in the end."""

    def __init__(self, message: str, failure: type[EngineGone | ServerFault]) -> None:
        super().__init__(message)
        self.failure = failure
