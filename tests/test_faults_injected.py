"""Faults injected into the embedded models: each changes what the model answers, and nothing of it stays behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from injected import answers, differ, endings, request
from replay import embedded

from conformance import checkpoint
from conformance.faults import library
from conformance.faults.fault import Injection, NotApplicable, parse_injection
from conformance.names import UsageError

pytestmark = pytest.mark.torch

OFTEN = {"sampling.second-best": 0.3, "intermittent.swapped-results": 0.9, "intermittent.wrong-row": 0.5}
"""Rates at which the few questions of these tests are sure to be hit."""

ENDINGS = ("sampling.stops-ignored", "sampling.end-ignored", "sampling.end-kept", "sampling.finish-reason")


@pytest.fixture(scope="module")
def loaded() -> Iterator[Any]:
    """One clean runner for each model, with its answers, opened on first use."""
    from conformance.engines.transformers import TransformersRunner

    found: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in found:
            attention = "eager" if name == "generation-gemma2" else "sdpa"  # sdpa takes no softcap
            runner = TransformersRunner(request(name, attention=attention)).__enter__()
            said = answers(runner, name, longest=True)
            if name == "generation-mistral":
                said |= endings(runner, name)
            found[name] = runner, said
        return found[name]

    yield of
    for runner, _ in found.values():
        runner.__exit__(None, None, None)


def _model(fault: Any) -> str:
    """An attention kernel's fault is shown on the cheapest model that has it."""
    return "embedding-qwen3" if fault.suite == "attention" else str(fault.model)


def _ask(runner: Any, fault: str, name: str) -> Any:
    if fault in ENDINGS:
        return endings(runner, name)
    return answers(runner, name, longest=fault.startswith("truncation."))


@pytest.mark.parametrize("fault", [one.id for one in library.FAULTS])
def test_a_fault_changes_the_answers_and_is_taken_away(
    fault: str, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conformance.faults.host import Host

    found = library.fault(fault)
    name = _model(found)
    runner, clean = loaded(name)
    if found.variant == "chunked":
        monkeypatch.setattr(runner, "_chunk", 32)
    before = _state(runner)
    host = Host(runner, Injection(fault, rate=OFTEN.get(fault)), rate=found.rate)
    found.inject(host)
    faulty = _ask(runner, fault, name)
    host.close()
    assert _state(runner) == before
    same_rows = {key: clean[key] for key in faulty}
    if fault.startswith(("truncation.", "sampling.")):
        assert differ(faulty, same_rows)
    else:
        assert differ(faulty, _first(same_rows, faulty))
    for key, answer in faulty.items():  # the evidence of what ran stays what it was
        there, here = clean[key].effective, answer.effective
        assert (here.attention, here.dtype, set(here.kernels)) == (there.attention, there.dtype, set(there.kernels))
        assert here.layers * here.forwards + _vision(here) == sum(here.kernels.values())


@pytest.mark.parametrize("name", list(embedded()))
def test_without_a_hit_every_fault_answers_as_the_clean_runner(name: str, loaded: Any) -> None:
    from conformance.faults.host import Host

    runner, clean = loaded(name)
    hosts = []
    for found in library.FAULTS:
        applies = found.applies(checkpoint.config(embedded()[name][0].folder), embedded()[name][1].role)
        if applies is None and found.id not in ("pooling.pad-side", "positions.padding-counted"):
            hosts.append(Host(runner, Injection(found.id, rate=1e-12)))
            try:
                found.inject(hosts[-1])
            except NotApplicable as error:
                assert str(error)
    assert len(hosts) > 10
    quiet = answers(runner, name)
    for host in reversed(hosts):
        host.close()
    assert not differ(quiet, _first(clean, quiet), rtol=1e-5)


@pytest.mark.parametrize("fault", ["pooling.pad-side", "positions.padding-counted"])
def test_padding_on_the_other_side_alone_changes_no_answer(fault: str, loaded: Any) -> None:
    from conformance.faults.host import Host

    runner, clean = loaded("embedding-xlmr")
    host = Host(runner, Injection(fault, rate=1e-12))
    library.fault(fault).inject(host)
    quiet = answers(runner, "embedding-xlmr")
    host.close()
    assert not differ(quiet, _first(clean, quiet), rtol=1e-5)


@pytest.mark.parametrize("fault", ["scale.missing", "norm.eps-1e-3", "intermittent.wrong-row", "cache.other-row"])
def test_a_rate_is_honoured_and_the_same_calls_are_hit_again(fault: str, loaded: Any) -> None:
    from conformance.faults.host import Host

    name = _model(library.fault(fault))
    runner, clean = loaded(name)
    counts, said = [], []
    for _ in range(2):
        host = Host(runner, parse_injection(f"{fault}@rate=0.3"))
        draws = [0, 0]
        hits = host.hits

        def counted(draws: list[int] = draws, hits: Any = hits) -> bool:
            draws[0] += 1
            draws[1] += (hit := hits())
            return bool(hit)

        host.hits = counted  # type: ignore[method-assign]
        library.fault(fault).inject(host)
        said.append(answers(runner, name))
        host.close()
        counts.append(draws)
    assert counts[0] == counts[1]
    assert counts[0][0] >= 10
    share = counts[0][1] / counts[0][0]
    assert abs(share - 0.3) < 4 * (0.21 / counts[0][0]) ** 0.5
    assert not differ(said[0], said[1], rtol=0)
    assert differ(said[0], _first(clean, said[0]))


def test_the_middle_layer_alone_is_changed_less(loaded: Any) -> None:
    from conformance.faults.host import Host

    runner, _ = loaded("embedding-qwen3")
    clean, off = runner.embed(["a river"]).values, {}
    for scope in ("all", "middle"):
        host = Host(runner, parse_injection("scale.doubled" + "@middle" * (scope == "middle")))
        library.fault("scale.doubled").inject(host)
        off[scope] = np.abs(runner.embed(["a river"]).values - clean).max()
        host.close()
    assert 0 < off["middle"] < off["all"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("fault", ["mask.tail-block@middle", "rope.interleaved", "precision.fp8-probabilities"])
def test_the_faulty_runner_injects_in_every_dtype_and_implementation(fault: str, attention: str, dtype: str) -> None:
    from conformance.engines.transformers import TransformersRunner
    from conformance.faults.runner import FaultyRunner

    asked = {"attention": attention, "dtype": dtype}
    with TransformersRunner(request("embedding-qwen3", **asked)) as runner:
        clean = answers(runner, "embedding-qwen3")
    with FaultyRunner(request("embedding-qwen3", options={"fault": fault}, **asked)) as faulty:
        said = answers(faulty, "embedding-qwen3")
    assert differ(said, clean)
    assert said["vectors"].effective == clean["vectors"].effective
    assert said["vectors"].prompt_token_ids == clean["vectors"].prompt_token_ids


@pytest.mark.parametrize("fault", ["scale.one-percent", "rope.phase-bfloat16", "norm.eps-1e-5", "mask.causal-plus-one"])
def test_the_faulty_reference_differs_in_float64_by_the_fault_alone(fault: str) -> None:
    from conformance.faults.runner import FaultyReference
    from conformance.reference.runner import ReferenceRunner

    asked = {"dtype": "float64"}
    with ReferenceRunner(request("embedding-qwen3", options={"widen": True}, **asked)) as runner:
        clean = answers(runner, "embedding-qwen3")
    off = []
    for text in (fault, f"{fault}@rate=1e-12"):
        with FaultyReference(request("embedding-qwen3", options={"widen": True, "fault": text}, **asked)) as faulty:
            said = answers(faulty, "embedding-qwen3")
        assert said["vectors"].values.dtype == np.float64  # type: ignore[attr-defined]
        off.append(np.abs(said["vectors"].values - clean["vectors"].values).max())  # type: ignore[attr-defined]
    assert off[0] > 1e-6
    assert off[1] < 1e-14


def test_an_unchanged_kernel_that_is_computed_beside_answers_as_the_kernel(loaded: Any) -> None:
    from conformance.faults.host import Host

    for name in ("embedding-qwen3", "embedding-xlmr"):
        runner, clean = loaded(name)
        for change in (lambda call: call.beside(), lambda call: call.run(visible=call.visible())):
            host = Host(runner, Injection("none"))
            host.attention(change)
            said = answers(runner, name)
            host.close()
            assert not differ(said, _first(clean, said), rtol=1e-5)
            assert said["vectors"].effective.kernels.keys() == clean["vectors"].effective.kernels.keys()


def test_a_fault_that_does_not_apply_is_refused_with_the_reason() -> None:
    from conformance.faults.runner import FaultyRunner

    with (
        pytest.raises(NotApplicable, match=r"window\.ignored does not apply: the model has no sliding window"),
        FaultyRunner(request("embedding-qwen3", options={"fault": "window.ignored"})),
    ):
        pass


def test_what_only_the_loaded_model_shows_is_refused_and_the_model_released() -> None:
    from conformance.faults.runner import FaultyRunner

    runner = FaultyRunner(request("classification-qwen2", options={"fault": "norm.qk-dropped"}))
    with pytest.raises(NotApplicable, match=r"no module that norm\.qk-dropped could change"), runner:
        pass
    assert not hasattr(runner, "model")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fault": "mask.nome"}, "unknown fault 'mask.nome'; did you mean 'mask.none'?"),
        ({"fault": "pooling.pad-side@middle"}, "pooling.pad-side cannot be injected into the middle layer alone"),
        ({"fault": "mask.none@twice"}, "'mask.none@twice' is no injection"),
        ({}, "'' is no injection"),
    ],
)
def test_an_injection_that_cannot_be_is_refused_before_anything_is_loaded(options: Any, message: str) -> None:
    from conformance.faults.runner import FaultyRunner

    with pytest.raises(UsageError) as raised:
        FaultyRunner(request("embedding-qwen3", folder=Path("nowhere"), options=options))
    assert message in str(raised.value)


def test_attention_called_without_a_model_around_it_is_in_scope(loaded: Any) -> None:
    """A kernel that is called alone has a layer of its own making, which is none of the model's."""
    from types import SimpleNamespace

    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from conformance.faults.host import Host

    runner, _ = loaded("embedding-qwen3")
    query, key = torch.randn(1, 4, 5, 64), torch.randn(1, 2, 5, 64)
    layer = SimpleNamespace(num_key_value_groups=2, is_causal=True, training=False)

    def called() -> Any:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](layer, query, key, key, None, scaling=0.125)[0]

    clean = called()
    host = Host(runner, parse_injection("gqa.tiled-map@middle"))
    library.fault("gqa.tiled-map").inject(host)
    tiled = called()
    host.close()
    assert torch.equal(called(), clean)
    honest = key.repeat_interleave(2, 1)[:, [0, 2, 1, 3]]  # query head h reads key head h % 2
    expected = torch.nn.functional.scaled_dot_product_attention(query, honest, honest, is_causal=True, scale=0.125)
    torch.testing.assert_close(tiled, expected.transpose(1, 2))


def _vision(effective: Any) -> int:
    return effective.vision.layers * effective.vision.sequences if effective.vision else 0


def _first(long: dict[str, Any], short: dict[str, Any]) -> dict[str, Any]:
    """The answers in `long` to the questions of `short`; the longest prompt is the last."""
    from dataclasses import replace

    found = {}
    for key, answer in short.items():
        rows = len(answer.prompt_token_ids)
        whole = long[key]
        if rows and rows < len(whole.prompt_token_ids):
            whole = replace(whole, prompt_token_ids=whole.prompt_token_ids[:rows], values=whole.values[:rows])
        found[key] = whole
    return found


def _state(runner: Any) -> dict[str, Any]:
    """The identity of everything that an injection may have replaced."""
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from conformance.engines import transformers, vision

    owners: dict[str, Any] = {"runner": runner, "tokenizer": runner.tokenizer, "functional": torch.nn.functional}
    owners |= {"transformers": transformers, "vision": vision, "config": runner.model.config.get_text_config()}
    found = {"interface": dict(ALL_ATTENTION_FUNCTIONS._local_mapping)}
    for name, module in runner.model.named_modules():
        owners[f"module {name}"] = module
        owners[f"namespace of {name}"] = sys.modules[type(module).__module__]
        for part in ("_parameters", "_buffers"):
            found[f"{part} of {name}"] = {key: id(value) for key, value in getattr(module, part).items()}
    skipped = ("_forwards", "_seen", "rope_deltas", "__warningregistry__")
    for name, owner in owners.items():
        values = vars(owner) if name != "config" else owner.to_dict()
        found[name] = {
            key: id(value) if callable(value) else type(value) for key, value in values.items() if key not in skipped
        }
    return found
