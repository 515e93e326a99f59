"""Nothing of the user, the machine or a secret survives redaction, and honest text does."""

from __future__ import annotations

import json
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import document, result

from conformance.results.redact import Redactor
from conformance.results.validation import document_faults
from conformance.verdict import Verdict

SECRET = "x9$very-secret\n2"
REDACTOR = Redactor(
    user="margarethe",
    host="buildbox17.corp.example",
    home="/home/margarethe",
    secrets=[SECRET, "on", "true"],
    keep=["/scratch/run/out", "/home/margarethe/models/qwen3"],
)

glue = st.text(st.sampled_from(" \n\t\"'()=,;<>[]|"), min_size=1, max_size=3)
words = st.text(string.ascii_letters + string.digits + " .-_/:\n", max_size=20)
private = st.sampled_from(
    [
        ("margarethe",) * 2,
        ("Margarethe",) * 2,
        ("buildbox17",) * 2,
        ("buildbox17.corp.example",) * 2,
        (SECRET,) * 2,
        ("/home/margarethe/project/file.py", "/home/margarethe"),
        ("/home/margarethe",) * 2,
        ("file:///home/margarethe/deep/er/file", "margarethe"),
        ("/home/other/project/deep/file.py", "/home/other"),
        ("/opt/company/secret-project/lib/file.py", "secret-project"),
        ("C:\\Users\\bob\\project\\lib\\file.py", "bob"),
        ("someone.else+x@mail.example.org", "someone.else"),
        ("https://login:pass99@index.example/simple", "pass99"),
        ("hf_" + "aB3" * 10,) * 2,
        ("ghp_" + "aB3" * 12,) * 2,
        ("sk-proj-" + "aB3" * 12,) * 2,
        ("Authorization: Bearer abc.def-123_x", "abc.def-123_x"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(before=words, left=glue, hidden=private, right=glue, after=words)
def test_nothing_private_survives_in_any_text(
    before: str, left: str, hidden: tuple[str, str], right: str, after: str
) -> None:
    text, mark = hidden
    redacted = REDACTOR.text(f"{before}{left}{text}{right}{after}")
    assert mark.lower() not in redacted.lower()
    assert REDACTOR.text(redacted) == redacted


@settings(max_examples=100, deadline=None)
@given(hidden=private, data=st.data())
def test_nothing_private_survives_anywhere_in_a_document(hidden: tuple[str, str], data: st.DataObject) -> None:
    text, mark = hidden
    field = data.draw(st.sampled_from(["reason", "message", "statement", "reproduce", "log_tail", "role"]))
    changes: dict[str, Any] = {field: f"see {text} there"}
    built = document([result(Verdict.FAIL, **changes)], not_covered=[f"not {text} here"], redact=REDACTOR)
    built["facts"] = REDACTOR({"paths": [text], "nested": {f"key of {text}": (text, {"deep": text})}})
    assert json.dumps(mark).strip('"').lower() not in json.dumps(built).lower()
    assert document_faults(built) == []


def test_a_model_named_after_its_owner_is_redacted_alike_everywhere() -> None:
    built = document([result(model="of margarethe")], redact=REDACTOR)
    assert "margarethe" not in json.dumps(built)
    assert built["cases"][0]["id"].endswith("[of%20<user>]")
    assert document_faults(built) == []


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("File /opt/py/lib/site-packages/torch/nn/linear.py, line 3", "File .../nn/linear.py, line 3"),
        ("model in /home/margarethe/models/qwen3/config.json", "model in ~/models/qwen3/config.json"),
        ("written to /scratch/run/out/rows/0a.safetensors", "written to /scratch/run/out/rows/0a.safetensors"),
        ("not /scratch/run/output/rows/x", "not .../rows/x"),
        ("/home/margarethe/notes and ~/notes", "~/notes and ~/notes"),
        ("PATH=/usr/local/bin:/usr/local/sbin/x", "PATH=.../local/bin:.../sbin/x"),
        ("/home/other/a/b/c and C:\\Users\\bob\\b.py", ".../b/c and .../b.py"),
        ("Bearer abcdefgh12 and hf_" + "a1" * 10, "Bearer <secret> and <secret>"),
        ("margarethe@buildbox17 wrote a.b@c.example", "<user>@<host> wrote <email>"),
    ],
)
def test_what_is_left_still_tells_what_it_was(text: str, redacted: str) -> None:
    assert REDACTOR.text(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "embedding.test_vectors_agree[transformers/sdpa/bfloat16/vision=a%2Fb][qwen3-0.6]",
        "the ratio is 3/4, and/or n/a; 1e-5; /dev/shm; see https://example.org/a/b/c/d?x=1",
        "aten::_scaled_dot_product_flash_attention_for_cpu x 56",
        "2026-11-30T10:00:00Z",
        "hf_overrides and hf_config, sk-learn, task-specific-parameters-2",
        "ab" * 32,
        "true on PASS FAIL max min nan inf",
        "margarethes and the-buildbox177",
    ],
)
def test_honest_text_is_left_alone(text: str) -> None:
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize("user", ["a", "bob", "root", "runner", "user", "1000", "test", "fail", "PASS", "sdpa", ""])
@pytest.mark.parametrize("host", ["localhost", "vm", "box", "docker", "12345678", "model", ""])
def test_short_and_common_names_do_not_mangle_a_document(user: str, host: str) -> None:
    results = [result(), result(Verdict.FAIL, test="test_two")]
    plain = document(results)
    home = f"/home/{user}" if user else "/"
    assert document(results, redact=Redactor(user=user, host=host, home=home, secrets=["a", "", "float32"])) == plain


def test_a_short_user_name_is_still_taken_out_of_paths() -> None:
    redactor = Redactor(user="al", home="/home/al")
    assert redactor.text("/home/al, /home/al/x and also /home/al/a/b/c") == "~, ~/x and also .../b/c"


def test_the_environment_gives_the_secrets() -> None:
    environment = {
        "HF_TOKEN": "tok-en-value",
        "api_key": "key-value-1",
        "DB_PASSWORD": "pass-word-1",
        "TERM": "xterm-256",
    }
    redactor = Redactor.of_this_machine(environment=environment)
    assert redactor.text("tok-en-value key-value-1 pass-word-1 xterm-256") == "<secret> <secret> <secret> xterm-256"


@pytest.mark.parametrize("filler", ["a", "a.", "/", "/a", "@", "a@", "-", "hf_", "sk-", "~", " ", "://a:", "Bearer "])
def test_a_long_text_of_anything_is_redacted_in_time(filler: str) -> None:
    began = time.monotonic()
    REDACTOR.text(filler * (200_000 // len(filler)))
    assert time.monotonic() - began < 5
