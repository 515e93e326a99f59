"""The loaded model that a fault is injected into, and what an injection may do to it.

Everything is done by replacing functions and attributes for as long as the runner is open, and is undone on exit. The
configuration's attention implementation and the kernels that run stay what they are: the evidence of what ran is true,
and only a comparison of outputs shows the fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from random import Random
from typing import TYPE_CHECKING, Any

from conformance.faults.fault import Injection, NotApplicable

if TYPE_CHECKING:
    from conformance.engines.loaded_model import LoadedModel
    from conformance.faults.kernel import KernelCall

_LAYER = re.compile(r"\.(?:layers|layer|blocks|h)\.(\d+)\.")
_INTERFACE = "ALL_ATTENTION_FUNCTIONS"
_EAGER = "eager_attention_forward"


class Host:
    """A runner whose model has been loaded. `rate` is the share of calls at which what is wrapped is faulty."""

    def __init__(self, runner: LoadedModel, injection: Injection, *, rate: float = 1.0) -> None:
        self.runner = runner
        self.injection = injection
        self.rate = rate if injection.rate is None else injection.rate
        self._draws = Random(str(injection))  # the same calls are hit whenever the same questions are asked
        self._undo = ExitStack()

    def close(self) -> None:
        """Take everything away again, the last first."""
        self._undo.close()

    @property
    def model(self) -> Any:
        """The transformers model."""
        return self.runner.model

    @property
    def vision_tower(self) -> Any:
        """The module that reads pictures. NotApplicable where the model has none."""
        if self.runner.vision is None:
            raise NotApplicable("the model has no vision tower")
        return self.model.model.visual

    def hits(self) -> bool:
        """Whether this call is one of the faulty ones; it draws, so it is asked once a call."""
        return self.rate >= 1 or self._draws.random() < self.rate

    def chance(self, most: int) -> int:
        """A number below `most` from the same seeded generator: which row, token or tile."""
        return self._draws.randrange(most)

    def wrap(self, owner: Any, name: str, change: Callable[..., Any], *, always: bool = False) -> None:
        """From now on `owner.name(...)` is `change(original, ...)` at the calls that are hit, or `always`."""
        original = getattr(owner, name)

        @wraps(original)  # transformers reads the signatures of forward methods
        def changed(*args: Any, **kwargs: Any) -> Any:
            return change(original, *args, **kwargs) if always or self.hits() else original(*args, **kwargs)

        self._undo.enter_context(during(owner, name, changed))

    def modules(self, wanted: Callable[[str, Any], bool], *, vision: bool = False) -> list[Any]:
        """The model's modules in scope that are `wanted(name, module)`; without the vision tower's, or only those.

        NotApplicable where there is none.
        """
        found = [
            module
            for name, module in self.model.named_modules()
            if _in_vision(name) == vision and wanted(name, module) and self._in_scope(name + ".", vision)
        ]
        if not found:
            raise NotApplicable(f"the model has no module that {self.injection.fault} could change")
        return found

    def attention_modules(self, *, vision: bool = False) -> list[Any]:
        """The attention modules in scope."""
        return self.modules(lambda name, module: _attends(module), vision=vision)

    def rotary(self) -> Any:
        """The module that makes the text model's rotary tables. NotApplicable where positions are learned."""
        found = [
            (len(name), module)
            for name, module in self.model.named_modules()
            if hasattr(module, "inv_freq") and not _in_vision(name)
        ]
        if not found:
            raise NotApplicable("the model has no rotary positions")
        return min(found, key=lambda pair: pair[0])[1]  # some versions keep unused copies further inside

    def attention(self, change: Callable[[KernelCall], Any], *, vision: bool = False, always: bool = False) -> None:
        """From now on the attention kernel answers `change(call)` to the layers in scope, at the calls that are hit
        or `always`.

        `change` returns [batch, queries, heads, size], as kernels do. A module that is none of the model's own, as
        of a call without a model around it, is always in scope.
        """
        from conformance.faults.kernel import KernelCall, attending

        scoped = {id(module) for module in self.attention_modules(vision=vision)}
        own = {id(module) for module in self.model.modules() if _attends(module)}
        config = self.model.config
        config = config.vision_config if vision else config.get_text_config()
        implementation = str(config._attn_implementation)

        def changed(
            kernel: Any, module: Any, query: Any, key: Any, value: Any, mask: Any = None, **options: Any
        ) -> Any:
            mask = options.pop("attention_mask", mask)
            inside = id(module) in scoped or (not vision and id(module) not in own)
            if not inside or not (always or self.hits()):
                return kernel(module, query, key, value, mask, **options)
            return change(KernelCall(module, query, key, value, mask, options, kernel, implementation)), None

        modules = [module for name, module in self.model.named_modules() if _attends(module)]
        namespaces = {id(space): space for space in (sys.modules[type(module).__module__] for module in modules)}
        for namespace in namespaces.values():
            if hasattr(namespace, _EAGER):
                self.wrap(namespace, _EAGER, changed, always=True)
        for interface in {id(one): one for one in map(_interface, namespaces.values()) if one is not None}.values():
            if implementation in interface:
                self._wrap_entry(interface, implementation, changed)
        for module in modules:  # models that call no attention function: their attention is a method
            if _interface(sys.modules[type(module).__module__]) is None:
                self.wrap(module, "forward", attending(module, implementation, changed), always=True)

    def _wrap_entry(self, interface: Any, name: str, change: Callable[..., Any]) -> None:
        kernel = interface[name]
        before = interface._local_mapping.get(name)

        @wraps(kernel)
        def changed(*args: Any, **kwargs: Any) -> Any:
            return change(kernel, *args, **kwargs)

        def restore() -> None:
            if before is None:
                del interface[name]
            else:
                interface[name] = before

        interface[name] = changed  # of this instance only: not what `register` knows
        self._undo.callback(restore)

    def _in_scope(self, name: str, vision: bool) -> bool:
        if self.injection.scope == "all":
            return True
        config = self.model.config
        layers = config.vision_config.depth if vision else config.get_text_config().num_hidden_layers
        found = _LAYER.search("." + name)
        return found is not None and int(found[1]) == int(layers) // 2


@contextmanager
def during(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside the block, and what it was afterwards."""
    own = vars(owner)
    parts = (own, own.get("_parameters", {}), own.get("_buffers", {}), own.get("_modules", {}))
    inherited = not any(name in part for part in parts) and not isinstance(getattr(type(owner), name, None), property)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _attends(module: Any) -> bool:
    projects = hasattr(module, "q_proj") or hasattr(module, "query")
    return hasattr(module, "qkv") or (projects and getattr(module, "layer_idx", None) is not None)


def _in_vision(name: str) -> bool:
    return "visual" in name.split(".")


def _interface(namespace: Any) -> Any:
    return getattr(namespace, _INTERFACE, None)
