from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import vendor

from conformance.inventory import load_suites
from conformance.names import UsageError
from conformance.registry import Entry, Registry, discover

SETUP_CFG = """
[metadata]
name = Conformance

[options.entry_points]
conformance.backends =
    # the ones we ship
    toy = toys.toy
conformance.engines =
    Toy = toys.engine:Runner
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith(("acme", "apex"))]:
        del sys.modules[name]


def test_a_checkout_speaks_through_its_setup_cfg(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text(SETUP_CFG)
    found = discover(tmp_path)
    assert found.backends["toy"] == Entry("toy", "toys.toy", "conformance")
    assert found.engines["Toy"].value == "toys.engine:Runner"


def test_a_vendors_backend_and_suite_come_through_the_same_door(site: Path) -> None:
    vendor.install(site)
    registry = discover()
    assert registry.profile_path("acme") == site / "acme_backend" / "profile.toml"
    assert site / "acme_suites" / "models.toml" in registry.catalogue_paths()
    assert "cpu" in registry.backends
    suite = next(suite for suite in load_suites(registry) if suite.name == "colours")
    assert (suite.role, suite.tests[0].requirement_id) == ("colours", "COL-010")


def test_one_name_from_two_distributions_is_an_error_that_names_both(site: Path) -> None:
    vendor.install(site)
    vendor.install(site, "apex-conformance", "apex", "apex")
    with pytest.raises(UsageError, match=r"'colours'.*(acme-conformance.*apex-|apex-conformance.*acme-)"):
        discover()


def test_an_unknown_backend_is_answered_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown backend 'cqu'; did you mean 'cpu'"):
        discover().profile_path("cqu")


def test_a_backend_without_profile_is_an_error(site: Path) -> None:
    vendor.install(site)
    (site / "acme_backend" / "profile.toml").unlink()
    with pytest.raises(UsageError, match=r"acme-conformance points to acme_backend, whose folder has no profile.toml"):
        discover().profile_path("acme")


def test_a_backend_that_cannot_be_imported_is_an_error() -> None:
    registry = Registry({"x": Entry("x", "no_such_package.x", "some-dist")}, {}, {})
    with pytest.raises(UsageError, match=r"some-dist points to no_such_package\.x"):
        registry.profile_path("x")


def suites_of(site: Path, text: str) -> Registry:
    vendor.install(site)
    (site / "acme_suites" / "colours.py").write_text(text)
    return Registry({}, {"colours": Entry("colours", "acme_suites.colours", "acme-conformance")}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        ("x = 1", "defines no unittest class with a role"),
        (vendor.SUITE.replace("test_red_is_red.requirement", "other = 1; x"), "test_red_is_red states no requirement"),
        (
            vendor.SUITE + "\n\nclass More(Colours):\n    def test_blue(self): pass\n"
            "    test_blue.requirement = SimpleNamespace(id='COL-010', statement='Blue MUST.', answers=False)\n",
            "requirement COL-010 is stated differently by",
        ),
    ],
)
def test_a_broken_suite_is_rejected(site: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_suites(suites_of(site, text.replace("other = 1; x = ", "other = ")))


def test_a_base_class_without_a_role_is_no_suite(site: Path) -> None:
    text = vendor.SUITE + "\n\nclass Base(TestCase):\n    role = ''\n"
    assert len(load_suites(suites_of(site, text))) == 1
