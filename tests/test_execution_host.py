"""What an exception says about the engine, and which requests a host answers."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.execution.host import CALLS, Host, error_kind, error_reply
from conformance.execution.remote import RemoteRunner
from conformance.runner import NotSupported, Runner


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


def raised_from(cause: BaseException) -> RuntimeError:
    error = RuntimeError("the engine core failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("x"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 400 bytes."),
        RuntimeError("Native API failed: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
        RuntimeError("UR_RESULT_ERROR_OUT_OF_HOST_MEMORY"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("XPU out of memory. Tried to allocate 2.00 GiB"),
        raised_from(MemoryError()),
    ],
)
def test_running_out_of_memory_is_known_in_every_guise(error: BaseException) -> None:
    assert error_kind(error, loading=False) == error_kind(error, loading=True) == "out_of_memory"


@pytest.mark.parametrize(
    "error",
    [
        ImportError("no module"),
        ModuleNotFoundError("No module named 'torch'"),
        AssertionError("Torch not compiled with CUDA enabled"),
        RuntimeError("No CUDA GPUs are available"),
        RuntimeError("Found no NVIDIA driver on your system. Please check"),
        RuntimeError("No XPU devices are available."),
        RuntimeError("CUDA error: no CUDA-capable device is detected"),
        raised_from(ImportError("x")),
    ],
)
def test_a_missing_package_or_device_is_the_environments_only_while_loading(error: BaseException) -> None:
    assert error_kind(error, loading=True) == "environment"
    assert error_kind(error, loading=False) == "error"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a chat room, doomed to bloom"),
        ValueError("the memory of the model"),
        RuntimeError("device-side assert triggered"),
        FileNotFoundError("config.json"),
        NotImplementedError("flash"),
    ],
)
def test_any_other_exception_is_the_engines(error: BaseException) -> None:
    assert error_kind(error, loading=True) == error_kind(error, loading=False) == "error"


def test_not_supported_is_so_whatever_it_says() -> None:
    assert error_kind(NotSupported("out of memory"), loading=True) == "not_supported"


def test_causes_that_form_a_ring_are_survived() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert error_kind(one, loading=True) == "error"


def test_an_error_reply_is_of_bounded_size() -> None:
    reply = error_reply(ValueError("x" * 10_000_000), loading=False)["error"]
    assert len(reply["message"]) == 8_192 and len(reply["traceback"]) == 32_768


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (None, "should be a table"),
        ({"method": "embed"}, "should be a table"),
        ({"method": "__exit__", "args": [], "kwargs": {}}, "'__exit__' is no method of a runner"),
        ({"method": "request", "args": [], "kwargs": {}}, "is no method of a runner"),
        ({"method": "embed", "args": [], "kwargs": {}}, "asked for before load"),
        ({"method": "facts", "args": ["no-colon"], "kwargs": {}}, "should have the form module:attribute"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(request_: Any, message: str) -> None:
    error = Host().reply(request_)["error"]
    assert error["type"] == "ProtocolError" and message in error["message"]


def test_a_close_without_a_load_is_answered() -> None:
    host = Host()
    assert host.reply({"method": "close", "args": [], "kwargs": {}})["ok"]["peak_resident_mib"] > 1
    assert host.closed


def test_every_method_of_a_runner_can_be_called_from_afar_and_nothing_else() -> None:
    methods = {name for name, member in vars(Runner).items() if callable(member) and not name.startswith("_")}
    assert methods == CALLS
    assert methods <= set(vars(RemoteRunner))
