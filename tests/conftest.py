"""What runs in tests leave behind for later runs stays away from the user's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONFORMANCE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
