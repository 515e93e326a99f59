"""Whether a server serves the model that is asked for, and takes prompts that are long enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.names import printable
from conformance.runner import Unavailable


def served_name(
    entries: Sequence[Mapping[str, Any]], url: str, *, asked: str, names: Sequence[str], limit: int | None
) -> str:
    """What requests are to call the model: the id of the entry of /v1/models that serves it.

    That is the one called `asked`; without that, one whose id or root is one of `names`, or a path that ends in one.
    Unavailable where there is none, or where it takes fewer than `limit` tokens.
    """
    wanted = {asked} if asked else {name.casefold() for name in names}
    for entry in entries:
        said = [str(entry[key]) for key in ("id", "root") if isinstance(entry.get(key), str)]
        if wanted & set(said if asked else (each.rstrip("/").rsplit("/", 1)[-1].casefold() for each in said)):
            return _long_enough(entry, url, names[0], limit)
    served = ", ".join(sorted({printable(str(entry.get("id")))[:100] for entry in entries})) or "no model"
    rest = "--model ROLE=MODEL plans that model alone"
    if not asked:
        rest += "; where the server calls it otherwise, the engine's option served_model_name says how"
    raise Unavailable(f"the server at {url} serves {served}, not {asked or names[0]}; {rest}")


def _long_enough(entry: Mapping[str, Any], url: str, name: str, limit: int | None) -> str:
    longest = entry.get("max_model_len")
    if limit is not None and isinstance(longest, int) and longest < limit:
        raise Unavailable(
            f"the server at {url} serves {name} with max_model_len {longest}, but prompts here have up to {limit} "
            f"tokens; start it with at least that (vLLM: --max-model-len {limit})"
        )
    return str(entry["id"])
