"""One attention kernel, a Python callable, as an engine of its own: no model, no tokenizer, nothing around it.

The callable is `kernel(query, key, value, *, causal, scale, window, softcap, lengths)`: tensors in the served dtype on
the device, shaped as in `AttentionCall`; `lengths` is an int32 tensor [batch] on the device, or None. It returns a
tensor like `query`. Of the named arguments it may leave out what it does not do: such calls are not made.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from conformance.engines import device as devices
from conformance.engines.kernel_calls import perform
from conformance.kernel_arguments import ARGUMENTS, lacking
from conformance.names import did_you_mean, unknown
from conformance.runner import AttentionCall, AttentionOutputs, Effective, NotSupported, Runner

if TYPE_CHECKING:
    from typing_extensions import Self


class KernelRunner(Runner):
    """Calls the callable that the engine option `kernel` names as "module:function"."""

    capabilities = frozenset({"attention"})

    def __enter__(self) -> Self:
        devices.require(self.request.device)
        devices.set_precision_switches()
        self._name = str(self.request.options["kernel"])
        self._callable = find(self._name)
        self._takes = taken(self._callable)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        devices.release(torch.device(self.request.device))

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        for call in calls:
            if missing := lacking(call, self._takes):
                raise NotSupported(f"{self._name} takes no {' and no '.join(missing)}, which this call needs")
        values, faults = perform(
            calls,
            self._call,
            device=self.request.device,
            dtype=getattr(torch, self.request.dtype),
            repeats=repeats,
            poison=poison,
        )
        made = len(calls) * repeats
        ran = Effective(self.request.dtype, self.request.attention, {self._name: made}, layers=1, forwards=made)
        return AttentionOutputs((), ran, values, faults)

    def _call(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: AttentionCall) -> object:
        lengths = None if call.lengths is None else torch.tensor(call.lengths, dtype=torch.int32, device=query.device)
        arguments = {
            "causal": call.causal,
            "scale": call.scale,
            "window": call.window,
            "softcap": call.softcap,
            "lengths": lengths,
        }
        given = {name: argument for name, argument in arguments.items() if name in self._takes}
        return self._callable(query, key, value, **given)


def find(name: str) -> Callable[..., object]:
    """The callable that "module:function" names. LookupError with the nearest name where there is none.

    What importing the module raises passes through.
    """
    module_name, _, function = name.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, function, None)
    if found is None:
        names = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise LookupError(unknown(f"function of {module_name} ({module.__file__})", function, names))
    if not callable(found):
        raise LookupError(f"{name} is a {type(found).__name__}, but should be a function")
    return found  # type: ignore[no-any-return]


def taken(kernel: Callable[..., object]) -> frozenset[str]:
    """Which of `ARGUMENTS` the callable takes. TypeError where it cannot be called as kernels are."""
    try:
        parameters = list(inspect.signature(kernel).parameters.values())
    except ValueError:
        raise TypeError("its signature cannot be read; wrap it in a function that has one") from None
    kinds = {each.kind for each in parameters}
    first = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)][:3]
    if len(first) < 3 and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise TypeError(f"it takes {len(first)} positional arguments, but should take query, key and value")
    rest = [each for each in parameters if each not in first]
    strange = [each for each in rest if each.default is each.empty and each.name not in ARGUMENTS]
    if faults := [each.name for each in strange if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]:
        raise TypeError(
            f"it needs {' and '.join(map(repr, faults))}, which it is not given; {did_you_mean(faults[0], ARGUMENTS)}"
        )
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return frozenset(ARGUMENTS)
    return frozenset(each.name for each in rest if each.kind is not each.POSITIONAL_ONLY) & frozenset(ARGUMENTS)


def describe(name: str) -> dict[str, Any]:
    """In a worker: what the callable `takes`, or the `fault`, one sentence, and the `trace` that its module left."""
    module = name.partition(":")[0]
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            return {"fault": f"there is no module {error.name!r}; {_nearest_module(str(error.name))}", "trace": ""}
        return {"fault": f"{module} cannot be imported: {type(error).__name__}: {error}", "trace": _own_trace(error)}
    try:
        return {"takes": sorted(taken(find(name)))}
    except LookupError as error:
        return {"fault": str(error.args[0]), "trace": ""}
    except TypeError as error:
        return {"fault": f"{name} cannot be called as a kernel: {error}", "trace": ""}


def _nearest_module(name: str) -> str:
    parent, _, last = name.rpartition(".")
    package = sys.modules.get(parent)
    path = getattr(package, "__path__", []) if parent else None
    known = [module.name for module in pkgutil.iter_modules(path)]
    if parent and package is not None and path == []:
        return f"{parent} is a module, not a package"
    near = did_you_mean(last, known)
    return near if near.startswith("did") else "it is looked for in the current folder and where Python's packages are"


def _own_trace(error: BaseException) -> str:
    """The trace without the frames of this file and of the import machinery: they tell the author nothing."""
    told = traceback.TracebackException.from_exception(error)
    machinery = (__file__, importlib.__file__)
    kept = [each for each in told.stack if not each.filename.startswith("<frozen") and each.filename not in machinery]
    told.stack = traceback.StackSummary.from_list(kept)
    return "".join(told.format())
