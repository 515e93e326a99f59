"""A server's answers become observations; what it does wrong becomes a message with the endpoint in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import openai_server as toy
import pytest
from openai_server import Small, changed, serving, statuses

from conformance.criteria.observed import ran_as_requested
from conformance.engines import server as server_module
from conformance.engines.openai import OpenAIRunner
from conformance.engines.server import Refused, ServerFault
from conformance.execution.errors import EngineLost
from conformance.execution.host import Host, error_kind
from conformance.execution.outcome import outcome_of
from conformance.runner import EngineGone, LoadRequest, NotSupported, Unavailable
from conformance.verdict import Verdict

pytest.importorskip("openai", reason="the client of servers is not installed: pip install 'conformance[openai]'")

COMPLETIONS = "/v1/completions"
PROMPTS = ("cab", "a bad cafe")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(server_module, "FIRST_PAUSE_S", 0.01)
    with serving() as served:
        yield served


def request(small: Small, model: str = "tiny", **options: Any) -> LoadRequest:
    options = {"url": small.url, "timeout_s": 5, **options}
    return LoadRequest(model, "/nowhere/tiny", "generation", "cpu", "none", "float32", {"max_tokens": 40}, options)


def entered(small: Small, **options: Any) -> OpenAIRunner:
    return OpenAIRunner(request(small, **options)).__enter__()


def forced(runner: OpenAIRunner, via: Any, continuations: list[list[int]], prompts: Any = ([1, 2, 3], [4, 5])) -> Any:
    drawn = np.arange(toy.VOCABULARY)[None, None].repeat(len(prompts), 0).repeat(max(map(len, continuations)), 1)
    return runner.score_tokens(prompts, continuations, drawn, via=via).values


def known(prompts: Any, continuations: list[list[int]]) -> Any:
    longest = max(map(len, continuations))
    values = np.full((len(prompts), longest, toy.VOCABULARY), np.nan)
    for row, (prompt, tokens) in enumerate(zip(prompts, continuations, strict=True)):
        for at in range(len(tokens)):
            values[row, at] = toy.logprobs_after([*prompt, *tokens[:at]])
    return values


@pytest.mark.parametrize("via", ["prefill", "decode"])
def test_forced_tokens_have_the_logprobs_of_every_candidate(small: Small, via: str) -> None:
    continuations = [[7, 8, 9, 2], [11, 3]]  # not what the model would say
    with entered(small) as runner:
        np.testing.assert_allclose(forced(runner, via, continuations), known(([1, 2, 3], [4, 5]), continuations))


@pytest.mark.parametrize("via", ["prefill", "decode"])
def test_no_named_ids_is_not_supported_and_says_so(small: Small, via: str) -> None:
    small.fields = [name for name in toy.FIELDS if name != "logprob_token_ids"]
    with (
        entered(small) as runner,
        pytest.raises(NotSupported, match=r"20 best .* logprob_token_ids at /v1/completions"),
    ):
        forced(runner, via, [[7, 8], [9]])


def test_decode_gives_up_text_that_is_never_the_forced_one(small: Small) -> None:
    worst = [int(np.argmin(toy.logprobs_after([1]))) for _ in range(30)]
    with entered(small) as runner, pytest.raises(NotSupported, match="left the forced one more than 16 times"):
        forced(runner, "decode", [worst], prompts=([1],))


def test_greedy_text_is_the_models(small: Small) -> None:
    with entered(small) as runner:
        found = runner.generate(PROMPTS, max_tokens=6, top_k=4, stop_token_ids=[5])
    for row, text in enumerate(PROMPTS):
        prefix = toy.ids_of(text)
        assert found.prompt_token_ids[row] == tuple(prefix)
        for at, token in enumerate(found.token_ids[row]):
            expected = toy.logprobs_after(prefix)
            assert token == int(np.argmax(expected)) == found.top_ids[row, at, 0]
            np.testing.assert_allclose(found.top_logprobs[row, at], np.sort(expected)[::-1][:4])
            prefix.append(token)
        stopped = found.token_ids[row][-1] in (5, toy.END)
        assert found.finish_reasons[row] == ("stop" if stopped else "length")
    assert small.asked[-1][1]["stop_token_ids"] == [5] and small.asked[-1][1]["temperature"] == 0


def test_a_cap_on_logprobs_is_kept_to(small: Small) -> None:
    small.most_logprobs = 5
    with entered(small) as runner:
        assert runner.generate(PROMPTS, max_tokens=3).top_ids.shape[2] == 5


def test_what_ran_is_undisclosed_and_agrees_with_a_claim_of_no_kernels(small: Small) -> None:
    with entered(small) as runner:
        effective = runner.generate(PROMPTS, max_tokens=2).effective
    assert effective.evidence == "undisclosed" and not effective.kernels
    assert ran_as_requested(effective, dtype="float32", attention="none", kernels=[]).verdict is Verdict.PASS
    assert ran_as_requested(effective, dtype="float32", attention="none", kernels=["x"]).verdict is Verdict.FAIL


def test_scores_are_raw_and_ranked_documents_come_back_in_order(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.engines.reading.Reader.pairs", lambda _, pairs: tuple((1,) for _ in pairs))
    pairs = [("ab", "cd"), ("ab", "ce"), ("ba", "cd"), ("ab", "ff")]
    expected = [toy.raw_score(query + document) for query, document in pairs]
    for path in ("/score", "/rerank"):
        small.paths = [each for each in toy.PATHS if each not in {"/score", "/rerank"} - {path}]
        with entered(small) as runner:
            np.testing.assert_allclose(runner.score_pairs(pairs).values, expected)
        assert small.asked[-1][0] == path and small.asked[-1][1]["use_activation"] is False


def test_vectors_logits_and_rewards_go_with_the_ids_that_the_server_reads(small: Small) -> None:
    turns = [[{"role": "user", "content": "cab"}], [{"role": "user", "content": "dad"}]]
    with entered(small) as runner:
        vectors, logits = runner.embed(PROMPTS), runner.classify(PROMPTS)
        rewards = runner.reward(turns)  # type: ignore[arg-type]
    ids = tuple(tuple(toy.ids_of(text)) for text in PROMPTS)
    assert vectors.prompt_token_ids == logits.prompt_token_ids == ids
    np.testing.assert_allclose((vectors.values**2).sum(axis=1), 1)
    assert logits.values.shape == (2, 3) and logits.values[0, 0] == toy.raw_score(PROMPTS[0])
    assert rewards.values.tolist() == [toy.raw_score("cab"), toy.raw_score("dad")]


@pytest.mark.parametrize(
    "ask", [lambda runner: runner.classify(PROMPTS), lambda runner: runner.score_pairs([("a", "b")])]
)
def test_numbers_that_may_be_activated_are_not_compared(small: Small, ask: Callable[[OpenAIRunner], Any]) -> None:
    small.fields = [name for name in toy.FIELDS if name != "use_activation"]
    with entered(small) as runner, pytest.raises(NotSupported, match="takes no use_activation"):
        ask(runner)


@pytest.mark.parametrize("describes_itself", [True, False])
def test_a_missing_endpoint_is_not_supported_by_name(small: Small, describes_itself: bool) -> None:
    small.describes_itself = describes_itself
    small.paths = ["/v1/models", "/tokenize"]
    with entered(small) as runner, pytest.raises(NotSupported, match="/v1/embeddings"):
        runner.embed(PROMPTS)


def test_a_server_must_be_named() -> None:
    with pytest.raises(Unavailable, match="--url"):
        OpenAIRunner(LoadRequest("tiny", "/nowhere", "generation", "cpu", "none", "float32")).__enter__()


def test_nobody_at_the_url_is_the_environments(small: Small) -> None:
    small.url = "http://127.0.0.1:9/v1"
    with pytest.raises(
        Unavailable, match=r"GET http://127.0.0.1:9/v1/models: no answer: .*refused.*, after 3 attempts"
    ):
        entered(small)


def test_another_model_is_refused_with_both_names(small: Small) -> None:
    small.model = "org/other"
    with pytest.raises(Unavailable, match="serves org/other, not tiny"):
        entered(small)
    entered(small, served_model_name="org/other").__exit__(None, None, None)


def test_a_model_that_takes_too_few_tokens_is_refused(small: Small) -> None:
    small.max_model_len = 39
    with pytest.raises(Unavailable, match="max_model_len 39, but prompts here have up to 40"):
        entered(small)


def test_what_passes_is_asked_again_and_counted(small: Small) -> None:
    small.misdeeds[COMPLETIONS] = statuses(503, 429)
    with entered(small) as runner:
        assert len(runner.generate(PROMPTS, max_tokens=1).token_ids) == 2
        assert runner.notes == (f"{small.url}: 2 of 3 requests were sent again (0 time-outs)",)


def fails(small: Small, misdeed: toy.Misdeed, kind: type[Exception], match: str, **options: Any) -> Exception:
    small.misdeeds[COMPLETIONS] = misdeed
    with entered(small, **options) as runner, pytest.raises(kind, match=match) as raised:
        runner.generate(PROMPTS, max_tokens=2)
    assert f"POST {small.url}/completions" in str(raised.value)
    return raised.value


def test_a_server_that_stays_broken_is_an_error_with_its_first_line(small: Small) -> None:
    error = fails(small, statuses(*[500] * 9), ServerFault, "status 500: <h1>broken</h1>, after 3 attempts")
    assert "more" not in str(error) and error_kind(error, loading=False) == "error"


def test_a_refusal_is_an_error_with_its_status(small: Small) -> None:
    fails(small, statuses(422, text=b'{"error": {"message": "no such thing"}}'), Refused, "status 422: no such thing")
    assert small.asked[-1][0] == COMPLETIONS and sum(path == COMPLETIONS for path, _ in small.asked) == 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda answer: [answer], "should be a JSON object, not list"),
        (lambda answer: answer["choices"].pop() and None, "1 results under 'choices', but 2 were asked for"),
        (lambda answer: answer.update(choices="x"), "list of objects under 'choices'"),
        (lambda answer: answer["choices"][1].update(index=0), "the indices"),
        (lambda answer: answer["choices"][0].update(logprobs=None), "no logprobs, though they were asked for"),
        (lambda answer: answer["choices"][1]["logprobs"]["token_logprobs"].pop() and None, "choice 1: 2 tokens, 1 log"),
        (lambda answer: answer["choices"][0].update(token_ids=["a", "b"]), "token_ids should be a list of token ids"),
        (lambda answer: answer["choices"][0]["logprobs"].update(token_logprobs=["x", "y"]), "'x' is no logprob"),
    ],
)
def test_malformed_answers_are_errors(small: Small, change: Callable[[Any], Any], match: str) -> None:
    fails(small, changed(change, small), ServerFault, match)


def test_no_json_is_an_error(small: Small) -> None:
    fails(small, lambda *_: (200, b"<html>"), ServerFault, "is no JSON: it begins '<html>'")


def test_texts_in_place_of_ids_are_an_error(small: Small) -> None:
    def with_texts(answer: Any) -> None:
        for choice in answer["choices"]:
            del choice["token_ids"]
            choice["logprobs"]["tokens"] = [" the"] * len(choice["logprobs"]["tokens"])

    fails(small, changed(with_texts, small), ServerFault, "the text ' the' in place of a token id")


@pytest.mark.parametrize("what", ["prompt_token_ids", "usage"])
def test_other_prompt_tokens_than_were_sent_are_an_error(small: Small, what: str) -> None:
    def other(answer: Any) -> None:
        answer["choices"][0]["prompt_token_ids"] = [9, 9] if what == "prompt_token_ids" else None
        answer["usage"]["prompt_tokens"] += what == "usage"

    small.misdeeds[COMPLETIONS] = changed(other, small)
    with entered(small) as runner, pytest.raises(ServerFault, match=r"the server read \[9, 9\]|but the server read 6"):
        runner.generate([[1, 2, 3], [4, 5]], max_tokens=1)


def test_another_count_of_tokens_than_its_tokenizer_has_is_an_error(small: Small) -> None:
    small.misdeeds["/v1/embeddings"] = changed(lambda answer: answer["usage"].update(prompt_tokens=99), small)
    with entered(small) as runner, pytest.raises(ServerFault, match="'cab': the server read 99 tokens"):
        runner.embed(PROMPTS)


def test_a_server_that_is_gone_is_a_crash(small: Small) -> None:
    error = fails(small, toy.vanishing, EngineGone, "no answer: .*, after 3 attempts")
    assert error_kind(error, loading=False) == "gone"
    lost = EngineLost("generate", "EngineGone", str(error), "")
    assert outcome_of(lost).verdict is Verdict.CRASH and "the engine is gone" in outcome_of(lost).reason


def test_a_silent_server_is_not_waited_for_for_ever(small: Small) -> None:
    fails(small, toy.silent(3), EngineGone, "nothing came for 0.2 s, after 3 attempts", timeout_s=0.2)


def test_the_key_is_sent_and_never_told(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_SECRET", "swordfish-77")
    small.misdeeds[COMPLETIONS] = lambda handler, body: (401, handler.headers["Authorization"].encode())
    with entered(small, api_key_variable="TINY_SECRET") as runner, pytest.raises(Refused) as raised:
        runner.generate(PROMPTS, max_tokens=2)
    assert small.headers[-1]["authorization"] == "Bearer swordfish-77"
    assert "swordfish" not in str(raised.value) and "status 401: Bearer <secret>" in str(raised.value)


def test_a_key_that_is_missing_is_asked_for(small: Small) -> None:
    small.misdeeds["/v1/models"] = statuses(401, text=b"who are you")
    with pytest.raises(Unavailable, match=r"status 401: who are you; the API key .* OPENAI_API_KEY"):
        entered(small)


def test_a_worker_tells_what_was_asked_again(small: Small) -> None:
    host = Host()
    load = {"method": "load", "args": ["conformance.engines.openai:OpenAIRunner", request(small)], "kwargs": {}}
    assert "ok" in host.reply(load)
    small.misdeeds[COMPLETIONS] = statuses(503)
    host.reply({"method": "generate", "args": [PROMPTS], "kwargs": {"max_tokens": 1}})
    notes = host.reply({"method": "close", "args": [], "kwargs": {}})["ok"]["notes"]
    assert len(notes) == 1 and "1 of 3 requests were sent again" in notes[0]
