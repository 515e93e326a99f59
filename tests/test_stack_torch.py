"""What torch tells of the stack, from what its releases print."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

CPU = """PyTorch built with:
  - GCC 13.3
  - C++ Version: 202002
  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture applications
  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71049cd69a3df32adcccb623b12cd7baa22)
  - OpenMP 201511 (a.k.a. OpenMP 4.5)
"""
CUDA = """PyTorch built with:
  - GCC 11.2
  - Intel(R) MKL-DNN v3.7.1 (Git Hash 8d263e693366ef8db40acc569cc7d8edf644556d)
  - CUDA Runtime 12.8
  - NVCC architecture flags: -gencode;arch=compute_90,code=sm_90
  - CuDNN 90.7.1
"""


def test_compiler_and_libraries_are_read_from_what_torch_prints() -> None:
    from conformance.engines.stack import built_with

    assert built_with(CPU) == {
        "compiler": "GCC 13.3",
        "oneDNN": "3.12.0-80afa71",
        "MKL": "2024.2-Product Build 20240605",
        "OpenMP": "201511",
    }
    assert built_with(CUDA) == {
        "compiler": "GCC 11.2",
        "oneDNN": "3.7.1-8d263e6",
        "CUDA runtime": "12.8",
        "cuDNN built with": "90.7.1",
    }
    assert built_with("") == {}


def test_a_release_of_cuda_is_read_from_its_number() -> None:
    from conformance.engines import stack

    assert [stack._cuda_version(number) for number in ("12040", "13000", "0", "")] == ["12.4", "13.0", "", ""]


def test_a_device_that_torch_does_not_have_raises_nothing() -> None:
    from conformance.engines.stack import runtime

    told = runtime("cpu")
    assert told["distributions"]["torch"]
    assert all(isinstance(text, str) and text for name, text in told.items() if name != "distributions")
    assert runtime("no-such-device")["distributions"] == told["distributions"]
