from __future__ import annotations

import pytest

from conformance.engines.releases import mismatch

NEEDS = ("extension", ("torch", 2), {"transformers": "<5"})


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ({"extension": "2.8.0", "torch": "2.8.0+cu128", "transformers": "4.56.2"}, ""),
        ({"extension": "2.8.10+xpu", "torch": "2.8.0+xpu", "transformers": "4.56.2"}, ""),
        (
            {"extension": "2.8.0", "torch": "2.13.0+cpu", "transformers": "4.56.2"},
            "extension 2.8.0 needs torch 2.8, but 2.13.0+cpu is installed; pip install 'torch==2.8.*'",
        ),
        (
            {"extension": "2.8.0", "torch": "2.8.0", "transformers": "5.24.0"},
            "extension 2.8.0 needs transformers <5, but 5.24.0 is installed; pip install 'transformers<5'",
        ),
    ],
)
def test_releases_that_do_not_go_together_are_named_with_what_would(installed: dict[str, str], said: str) -> None:
    assert mismatch(*NEEDS, version=installed.__getitem__) == said
