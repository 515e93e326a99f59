"""A small server with an OpenAI-compatible API, whose model is a table, and which misbehaves as it is told."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

VOCABULARY, END = 24, 23
FIELDS = ("prompt_logprobs", "logprob_token_ids", "use_activation", "repetition_penalty", "truncate_prompt_tokens")
PATHS = (
    *("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings"),
    *("/score", "/rerank", "/classify", "/tokenize"),
)

Answer = tuple[int, bytes]
Misdeed = Callable[[BaseHTTPRequestHandler, dict[str, Any]], "Answer | None"]


def logprobs_after(prefix: Sequence[int]) -> Any:
    """The model: float [VOCABULARY], of the token after `prefix`."""
    logits = 4 * np.random.default_rng([7, *prefix]).standard_normal(VOCABULARY)
    return logits - np.log(np.exp(logits).sum())


def ids_of(text: str) -> list[int]:
    """The tokenizer: a letter is a token."""
    return [ord(letter) % (END - 1) for letter in text]


def raw_score(text: str) -> float:
    """The scoring model."""
    return float(np.random.default_rng(ids_of(text)).standard_normal())


@dataclass
class Small:
    """What the server does. `misdeeds` are asked first: by path, an answer in place of the right one, or None."""

    model: str = "tiny"
    paths: Sequence[str] = PATHS
    fields: Sequence[str] = FIELDS
    describes_itself: bool = True
    most_logprobs: int = 20
    max_model_len: int = 64
    misdeeds: dict[str, Misdeed] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/openapi.json" and self.describes_itself:
            properties = {name: {} for name in (*self.fields, "model")}
            request = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Request"}}}}
            paths = {each: {"post": {"requestBody": request}} for each in self.paths}
            return _ok({"paths": paths, "components": {"schemas": {"Request": {"properties": properties}}}})
        if path not in self.paths:
            return 404, b'{"detail": "Not Found"}'
        if path == "/v1/models":
            return _ok({"data": [{"id": self.model, "max_model_len": self.max_model_len}]})
        return getattr(self, path.removeprefix("/v1").strip("/").replace("/", "_"))(body)  # type: ignore[no-any-return]

    def tokenize(self, body: dict[str, Any]) -> Answer:
        text = body["prompt"] if "prompt" in body else "".join(turn["content"] for turn in body["messages"])
        return _ok({"tokens": ids_of(text)})

    def completions(self, body: dict[str, Any]) -> Answer:
        count = body.get("logprobs", 0)
        if max(count, body.get("prompt_logprobs", 0)) > self.most_logprobs:
            return 400, json.dumps({"error": {"message": f"logprobs of {count} are too many"}}).encode()
        choices = [
            {"index": index, **self._choice(ids_of(each) if isinstance(each, str) else each, body)}
            for index, each in enumerate(body["prompt"])
        ]
        read = sum(len(choice["prompt_token_ids"]) for choice in choices)
        return _ok({"choices": choices, "usage": {"prompt_tokens": read}})

    def _choice(self, prompt: list[int], body: dict[str, Any]) -> dict[str, Any]:
        tokens: list[int] = []
        tops, own = [], []
        stops = {END, *body.get("stop_token_ids", ())}
        while len(tokens) < body["max_tokens"] and not (tokens and tokens[-1] in stops):
            known = logprobs_after([*prompt, *tokens])
            best = np.argsort(-known)[: body["logprobs"]].tolist()
            token = best[0]
            named = body.get("logprob_token_ids", best)
            tops.append({f"token_id:{each}": known[each] for each in [token, *named]})
            own.append(known[token])
            tokens.append(token)
        choice: dict[str, Any] = {
            "text": " ".join(f"t{token}" for token in tokens if token not in stops),
            "finish_reason": "stop" if tokens[-1] in stops else "length",
            "token_ids": tokens,
            "prompt_token_ids": prompt,
            "logprobs": {
                "tokens": [f"token_id:{token}" for token in tokens],
                "token_logprobs": own,
                "top_logprobs": tops,
            },
        }
        if "prompt_logprobs" in body:
            choice["prompt_logprobs"] = [None, *(self._of_prompt(prompt, at, body) for at in range(1, len(prompt)))]
        return choice

    def _of_prompt(self, prompt: list[int], at: int, body: dict[str, Any]) -> dict[str, Any]:
        known = logprobs_after(prompt[:at])
        best = np.argsort(-known)[: body["prompt_logprobs"]].tolist()
        return {str(each): {"logprob": known[each]} for each in {*best, prompt[at]}}

    def embeddings(self, body: dict[str, Any]) -> Answer:
        vectors = [np.random.default_rng(ids_of(text)).standard_normal(4) for text in body["input"]]
        data = [{"index": at, "embedding": (each / np.linalg.norm(each)).tolist()} for at, each in enumerate(vectors)]
        return _ok({"data": data[::-1], "usage": {"prompt_tokens": sum(len(ids_of(text)) for text in body["input"])}})

    def score(self, body: dict[str, Any]) -> Answer:
        scores = [raw_score(a + b) for a, b in zip(body["text_1"], body["text_2"], strict=True)]
        return _ok({"data": [{"index": at, "score": each} for at, each in enumerate(scores)]})

    def rerank(self, body: dict[str, Any]) -> Answer:
        scores = [(at, raw_score(body["query"] + each)) for at, each in enumerate(body["documents"])]
        ranked = sorted(scores, key=lambda pair: -pair[1])
        return _ok({"results": [{"index": at, "relevance_score": each} for at, each in ranked]})

    def classify(self, body: dict[str, Any]) -> Answer:
        texts = body["input"] if "input" in body else ["".join(turn["content"] for turn in body["messages"])]
        count = 3 if "input" in body else 1
        return _ok({"data": [{"index": at, "probs": [raw_score(text)] * count} for at, text in enumerate(texts)]})


def _ok(answer: Any) -> Answer:
    return 200, json.dumps(answer).encode()


@contextmanager
def serving(small: Small | None = None) -> Iterator[Small]:
    """The server, at `url`, in a thread, until the block ends."""
    of = small or Small()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: dict[str, Any]) -> None:
            of.asked.append((self.path, body))
            of.headers.append({name.lower(): value for name, value in self.headers.items()})
            misdeed = of.misdeeds.get(self.path)
            status, text = (misdeed(self, body) if misdeed else None) or of.answer(self.path, body)
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:  # the client has gone, as some tests want it to
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    of.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield of
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def changed(change: Callable[[dict[str, Any]], Any], small: Small) -> Misdeed:
    """The right answer, changed in place by `change`, or replaced by what that returns."""

    def misdeed(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Answer:
        status, text = small.answer(handler.path, body)
        answer = json.loads(text)
        replaced = change(answer)
        return status, json.dumps(answer if replaced is None else replaced).encode()

    return misdeed


def statuses(*of: int, text: bytes = b"<h1>broken</h1>\nmore") -> Misdeed:
    """These statuses one after the other, then right answers."""
    left = list(of)
    return lambda handler, body: (left.pop(0), text) if left else None


def silent(seconds: float) -> Misdeed:
    """Nothing for so long."""

    def misdeed(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        time.sleep(seconds)

    return misdeed


def trickling(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Answer:
    """A byte every tenth of a second, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)
    except OSError:
        handler.close_connection = True
    return 200, b""


def vanishing(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Answer:
    """The connection breaks before anything is said, as when a server has died."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True
    return 200, b""
