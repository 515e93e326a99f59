from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import world
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.catalogue import Catalogue
from conformance.inventory import load_suites
from conformance.names import UsageError
from conformance.profile import SCHEMA, ProfileError, load_profile
from conformance.profile_checks import expired_quirks, installed_faults
from conformance.registry import discover


def faults_of(text: str, *, add: str = "") -> list[str]:
    try:
        profile = world.profile(text, add=add)
    except ProfileError as error:
        return list(error.faults)
    return installed_faults(profile, world.SUITES, world.CATALOGUE, ["transformers"])


def test_the_toy_profile_is_fine() -> None:
    assert faults_of(world.TOP_LINES) == []


def test_a_run_that_selects_nothing_is_reported() -> None:
    text = world.TOP_LINES.replace('suites = ["words"]', 'suites = ["pairs"]')
    assert faults_of(text) == []
    without = Catalogue(tuple(model for model in world.CATALOGUE.models if "words" in model.roles))
    found = installed_faults(world.profile(text), world.SUITES, without, ["transformers"])
    assert len(found) == 1 and "runs.presubmit: it selects no case: no model of the tier 'embedded' plays" in found[0]


def test_a_variant_that_no_promise_is_about_is_reported() -> None:
    asking = replace(world.SUITES[0].tests[0], name="test_chunks", parameters={"variant": "chunked"})
    suites = (replace(world.SUITES[0], tests=(*world.SUITES[0].tests, asking)), world.SUITES[1])
    profile = world.profile(add="[engines.vllm.variants]\nchunked = {}\nchunk = { exact = true }\n")
    (fault,) = installed_faults(profile, suites, world.CATALOGUE, ["transformers"])
    assert "engines.vllm.variants.chunk: no promise" in fault and "did you mean 'chunked'?" in fault


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    ("right", "wrong", "where", "hint"),
    [
        ("default_engines =", "default_engine =", "backend: unknown key 'default_engine'", "'default_engines'"),
        ('device = "toy"', "", "backend: 'device' is missing", "torch device type"),
        ('device = "toy"', "device = 3", "backend.device: 3 is a whole number", "torch device type"),
        ('"bfloat16", "float16"]', '"bfloat17", "float16"]', "dtypes.supported[1]: 'bfloat17'", "'bfloat16'"),
        ('float32 = "ieee"', 'float32 = "iee"', "attention.plain.precision.float32: 'iee'", "'ieee'"),
        ('["toy::softmax"]', "{ float32 = [] }", "attention.plain.kernels.float32: is empty", "operator"),
        ("encoder = false", 'encoder = "no"', "attention.quick.encoder: 'no' is text", "true or false"),
        ("encoder = false", "head_sizes = [0]", "attention.quick.head_sizes[0]: 0 will not do", "above 0"),
        ("encoder = false", "page_sizes = [128]", "attention.quick.page_sizes: the engine's options set", "64"),
        ("encoder = false", 'batch = ["pad"]', "attention.quick.batch[0]: 'pad'", "'padded'"),
        ('TOY = "1"', "TOY = 1", "transformers.environment.TOY: 1", "quotes"),
        ('["transformers"]', '["sglang"]', "default_engines: 'sglang' has no [engines.sglang]", "add one"),
        ("[engines.vllm", "[engines.vlm", "engines.vlm: unknown engine", "'vllm'"),
        ('"pairs.encoder" =', '"pairs.encodr" =', "dtypes.suites.pairs.encodr: unknown", "'pairs.encoder'"),
        ('suites = ["words"]', 'suites = ["word"]', "runs.presubmit.suites: unknown suite 'word'", "'words'"),
        ('attention = "strange"', 'attention = "plain"', "plain.precision: 'float32' is claimed", "drop one"),
        ('"embedded"', '"embeded"', "runs.presubmit.tier: 'embeded'", "'embedded'"),
        ("budget_minutes = 5", "budget_minutes = 0", "runs.presubmit.budget_minutes: 0 will not do", "above 0"),
        ("budget_minutes = 5", 'budget_minutes = "5"', "runs.presubmit.budget_minutes: '5' is text", "above 0"),
        ("budget_minutes = 5", "budget = 5", "runs.presubmit: unknown key 'budget'", "'budget_minutes'"),
        ('suites = ["words"]', "suites = []", "runs.presubmit.suites: is empty", "list of suites"),
        (
            "[runs.presubmit]",
            "[estimates.embeded]\nwords = 3\n\n[runs.presubmit]",
            "unknown key 'embeded'",
            "'embedded'",
        ),
        (
            "[runs.presubmit]",
            "[estimates.full]\nword = 3\n\n[runs.presubmit]",
            "estimates.full.word: unknown",
            "'words'",
        ),
        ("[runs.presubmit]", "[estimates.full]\nwords = 0\n\n[runs.presubmit]", "estimates.full.words: 0", "above 0"),
        (
            'bfloat16 = ["toy::quick*"]',
            'float16 = ["x"]',
            "quick.kernels: nothing for 'bfloat16'",
            "name its operators",
        ),
        (', float16 = "eager"', "", "dtypes.supported: 'float16' is claimed by no", "leave it out"),
        ('default = ["float32", "bfloat16"]', 'default = ["float32", "float32"]', "dtypes.default", "once"),
        ("budget_minutes = 5", "budget_minutes = inf", "runs.presubmit.budget_minutes", "give a finite one"),
        ("page_size = 64", "page_sizes = [nan]", "engines.transformers.options.page_sizes[0]", "give a finite one"),
        ("[backend]", "[backend", "the file: no TOML", "line"),
    ],
)
def test_a_fault_says_file_place_and_what_would_be_right(right: str, wrong: str, where: str, hint: str) -> None:
    assert right in world.TOP_LINES
    text = world.TOP_LINES.replace(right, wrong)
    found = [fault for fault in faults_of(text) if where in fault]
    assert found, faults_of(text)
    assert found[0].startswith("toy/profile.toml: ")
    assert hint in found[0]


@pytest.mark.parametrize(
    ("when", "effect", "where", "hint"),
    [
        ('dtyp = "x"', "skip = true", "when: unknown key 'dtyp'", "'dtype'"),
        ('suite = "words"', "skip = false", "effect.skip: False will not do", "true"),
        ('suite = "words"', "tolerance = 3", "effect: unknown key 'tolerance'", "known are"),
        ('suite = "words"', "max_tokens = 0", "effect.max_tokens: 0 will not do", "above 0"),
        ("", "skip = true", "when: is empty", "condition"),
        ('suite = "wrds"', "skip = true", "when: no case of the full plan matches; suite: 'wrds'", "'words'"),
        ('suite = "words", role = "pairs*"', "skip = true", "each of suite, role matches some case", "go together"),
        ('vision = "X"', "skip = true", "vision: no model of the catalogue", "vision tower"),
        ('suite = "words"', 'attention = "quik"', "effect.attention: transformers claims no 'quik'", "'quick'"),
        ('attention = "quick"', 'dtype = "float32"', "effect: it leads to transformers/quick/float32", "only bfloat16"),
        ('memory_gib = "little"', "skip = true", "when.memory_gib: 'little' is no bound", "<20"),
        ('versions = { torch = "2" }', "skip = true", "when.versions.torch: '2' is no version specifier", ">=2.13"),
    ],
)
def test_a_quirk_that_is_wrong_is_reported(when: str, effect: str, where: str, hint: str) -> None:
    found = [fault for fault in faults_of(world.TOP_LINES, add=world.quirk(when, effect)) if where in fault]
    assert found, faults_of(world.TOP_LINES, add=world.quirk(when, effect))
    assert hint in found[0]


@pytest.mark.parametrize("key", ["id", "kind", "reason", "evidence", "link", "owner", "added", "expires", "uncovered"])
def test_a_quirk_without_its_metadata_is_reported(key: str) -> None:
    lines = world.quirk('suite = "words"', "skip = true").splitlines()
    add = "\n".join(line for line in lines if not line.startswith(f"{key} ="))
    assert any(f"'{key}' is missing" in fault for fault in faults_of(world.TOP_LINES, add=add))


def test_uncovered_is_not_asked_for_where_nothing_shrinks() -> None:
    add = world.quirk('suite = "words"', "top_k = 40").replace('uncovered = "what is after it"\n', "")
    assert faults_of(world.TOP_LINES, add=add) == []


def test_a_quirk_that_only_the_device_decides_is_fine() -> None:
    assert faults_of(world.TOP_LINES, add=world.quirk('device = "*A770*", dtype = "bfloat16"', "skip = true")) == []


def test_two_quirks_with_one_id_are_reported() -> None:
    add = 2 * world.quirk('suite = "words"', "max_tokens = 8")
    assert any("2 quirks have the id 'late-drift'" in fault for fault in faults_of(world.TOP_LINES, add=add))


def test_a_quirk_that_expires_before_it_was_added_is_reported() -> None:
    add = world.quirk('suite = "words"', "max_tokens = 8").replace("2027-02-28", "2026-01-01")
    assert any("expires: 2026-01-01 is not after" in fault for fault in faults_of(world.TOP_LINES, add=add))


def test_a_date_that_is_none_is_reported() -> None:
    add = world.quirk('suite = "words"', "max_tokens = 8").replace("2027-02-28", '"soon"')
    assert any(
        "expires: 'soon' will not do; it should be a date" in each for each in faults_of(world.TOP_LINES, add=add)
    )


def test_all_faults_are_reported_at_once() -> None:
    text = world.TOP_LINES.replace("encoder = false", "encodr = false").replace('device = "toy"', "device = 3")
    broken = world.quirk('suite = "words"', "max_tokens = 8").replace("2027-02-28", "2026-01-01")
    found = faults_of(text, add=broken)
    assert len(found) == 3, found


VALUES = ["3", "-1.5", "true", '"text"', "[]", "[1]", "{}", '{ a = "b" }', "2026-01-01", '["a", "a"]', '[{ id = "x" }]']
LINES = (world.TOP_LINES + world.quirk('suite = "words"', "max_tokens = 8")).splitlines()
KEYED = [index for index, line in enumerate(LINES) if " = " in line]


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYED), st.sampled_from(VALUES), min_size=1, max_size=3))
def test_whatever_stands_behind_a_key_is_accepted_or_reported(changes: dict[int, str]) -> None:
    lines = [
        f"{line.partition(' = ')[0]} = {changes[index]}" if index in changes else line
        for index, line in enumerate(LINES)
    ]
    assert all(fault.startswith("toy/profile.toml: ") for fault in faults_of("\n".join(lines)))


def test_the_examples_in_the_documentation_are_right() -> None:
    text = (Path(__file__).parent.parent / "docs" / "add-a-backend.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    profile, precision, disclaimed, run, driver, quirk = blocks[:6]
    parsed = world.profile(profile, add=precision + disclaimed + run + driver + quirk)
    assert parsed.driver.nodes == ("/dev/acme[0-9]*",) and parsed.driver.shows == "acme-smi"
    assert (parsed.name, len(parsed.disclaimed), list(parsed.runs), len(parsed.quirks)) == ("acme", 1, ["presubmit"], 1)


def test_what_says_where_the_driver_shows_is_checked() -> None:
    with pytest.raises(ProfileError) as raised:
        world.profile(add='[driver]\nnodes = ["dev/acme"]\nmask = ["ACME"]\nshows = ""\n')
    faults = "\n".join(raised.value.faults)
    assert "driver.nodes[0]" in faults and "did you mean 'masks'?" in faults and "driver.shows" in faults


def test_expiry_is_judged_on_the_given_day() -> None:
    profile = world.profile(add=world.quirk('suite = "words"', "max_tokens = 8"))
    expires = profile.quirks[0].expires
    assert expired_quirks(profile, expires) == []
    later = expires.replace(year=expires.year + 1)
    said = expired_quirks(profile, later)[0]
    assert "expired on 2027-02-28" in said
    assert said.endswith("; owner: someone; it is to be tested again and removed or dated anew")


def test_a_profile_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no profile"):
        load_profile(tmp_path / "profile.toml")
    with pytest.raises(UsageError, match="is a folder"):
        load_profile(tmp_path)


def test_a_variation_that_no_case_can_have_is_a_fault() -> None:
    table = "\n[engines.transformers.axes.graph.compiled]\noptions = {{}}\nwhen = {{ attention = {} }}\n"
    assert faults_of(world.TOP_LINES, add=table.format('"quick"')) == []
    (fault,) = faults_of(world.TOP_LINES, add=table.format('"quik"'))
    assert (
        "engines.transformers.axes.graph.compiled.when: {'attention': 'quik'} matches no case of transformers" in fault
    )


def test_a_bound_in_the_condition_of_a_variation_is_checked() -> None:
    table = "\n[engines.transformers.axes.tp.2]\noptions = {}\nwhen = { devices = 'two' }\n"
    with pytest.raises(ProfileError, match=r"engines\.transformers\.axes\.tp\.2\.when\.devices: 'two' is no bound"):
        world.profile(add=table)


def test_every_backend_in_the_tree_loads_and_names_its_engine_evidence() -> None:
    registry = discover()
    load_suites(registry)
    for name in ("cpu", "cuda", "xpu"):
        profile = load_profile(registry.profile_path(name))
        assert profile.name == name
        for engine in profile.engines.values():
            for claim in engine.attention.values():
                assert set(claim.kernels) == set(claim.precision)
