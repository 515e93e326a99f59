"""`run --audit` and the stack in the record, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import zenith_site
from zenith_site import misdeeds

from conformance.stack import stack_id


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def test_a_run_that_shows_every_claim_exits_0_with_the_table(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path, "--audit")
    assert {claim["status"] for claim in done.document["audit"]["claims"]} == {"shown"}
    assert (done.code, done.junit["testcase"]) == (
        0,
        len(done.document["cases"]) + len(done.document["audit"]["claims"]),
    )
    assert "audit of the profile" in done.said


def test_a_claim_that_the_selection_leaves_out_makes_a_pass_incomplete(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run_plain(site, tmp_path, "--audit")
    assert done.document["run"]["exit_code"] == 0
    assert (done.code, done.document["audit"]["exit_code"]) == (6, 6)
    assert "exit code 6: incomplete: nothing failed, but the audit names claims" in done.said


def test_nothing_is_audited_unless_it_is_asked_for_and_a_run_that_ended_can_be_audited_later(
    site: Path, tmp_path: Path
) -> None:
    first = zenith_site.run_plain(site, tmp_path)
    assert (first.code, "audit" in first.document) == (0, False)
    again = zenith_site.run_plain(site, tmp_path, "--resume", "--audit")
    assert "nothing to resume" in again.said
    assert (again.code, again.document["cases"]) == (6, first.document["cases"])
    told = zenith_site.conformance(site, "report", tmp_path / "out")
    assert (told.returncode, "audit of the profile" in told.stdout) == (6, True)


def test_an_engine_that_runs_another_dtype_is_a_mismatch_with_both_names(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run_plain(site, tmp_path, "--audit", text=misdeeds(classify="other_dtype"))
    (mismatch,) = done.document["audit"]["mismatches"]
    assert (mismatch["what"], mismatch["requested"], mismatch["effective"]) == ("dtype", "bfloat16", "float32")
    assert "mismatch: zenith/plain/bfloat16: dtype float32 ran, but bfloat16 was requested in colours." in done.said
    assert done.code == 1


def test_a_kernel_that_no_claim_names_is_told(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run_plain(site, tmp_path, "--audit", text=misdeeds(classify="other_kernel"))
    (entry,) = done.document["audit"]["under_claimed"]
    assert entry["what"] == "kernel zenith::slow ran, which no claim names"


def test_the_stack_is_in_the_record_and_its_id_follows_from_what_is_there(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run_plain(site, tmp_path, OMP_NUM_THREADS="1", VLLM_API_KEY="hunter22222")
    facts = done.document["facts"]
    assert facts["stack"]["environment"]["OMP_NUM_THREADS"] == "1"
    assert facts["stack"]["id"] == stack_id(facts)
    assert f"stack {facts['stack']['id']}: " in done.said
    assert "hunter22222" not in (done.output / "results.json").read_text() + done.said
