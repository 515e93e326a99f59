"""Runners with a fault: transformers, and the reference, doing what the option `fault` says.

The option is the text of an injection: `ID`, `ID@middle`, `ID@rate=0.01` or `ID@middle,rate=0.01`.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from conformance import checkpoint
from conformance.engines.loaded_model import LoadedModel
from conformance.engines.transformers import TransformersRunner
from conformance.faults.fault import NotApplicable, parse_injection
from conformance.faults.host import Host
from conformance.faults.library import fault
from conformance.names import UsageError
from conformance.reference.runner import ReferenceRunner
from conformance.runner import LoadRequest

if TYPE_CHECKING:
    from typing_extensions import Self


class Injected(LoadedModel):
    """Injects once the model is loaded, and takes the fault away before the model is released.

    UsageError for a fault that does not exist or has no such scope; NotApplicable, on entering, for one that the model
    cannot have.
    """

    def __init__(self, request: LoadRequest) -> None:
        self.injection = parse_injection(str(request.options.get("fault", "")))
        self.fault = fault(self.injection.fault)
        if self.injection.scope not in self.fault.scopes:
            raise UsageError(f"{self.fault.id} cannot be injected into the middle layer alone: it is in no layer")
        super().__init__(request)

    def __enter__(self) -> Self:
        require_applicable(self.injection.fault, Path(self.request.folder), self.request.role)
        super().__enter__()
        self.host = Host(self, self.injection, rate=self.fault.rate)
        try:
            self.fault.inject(self.host)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.host.close()
        super().__exit__(kind, error, trace)


class FaultyRunner(Injected, TransformersRunner):
    """The transformers engine with a fault."""


class FaultyReference(Injected, ReferenceRunner):
    """The reference with a fault, in float64 with the option `widen`: the direction in which that fault moves it."""


def require_applicable(identifier: str, folder: Path, role: str) -> None:
    """NotApplicable, with the reason, where the model in `folder`, loaded for `role`, cannot have the fault."""
    reason = fault(identifier).applies(checkpoint.config(folder), role)
    if reason:
        raise NotApplicable(f"{identifier} does not apply: {reason}")
