"""As much of torch as doctor asks for, in numpy, with a device "zenith"; TORCH_FAULT says what is wrong with it.

Copied into a vendor's site as torch.py. Faults: missing, too-old, raises, no-count, dies, hangs, warns, full, matmul,
attention, mask, tf32, nan, refuses, shape.
"""

import os
import sys
import time
import warnings
from types import SimpleNamespace as Namespace

import numpy as np

FAULT = os.environ.get("TORCH_FAULT", "")
if FAULT == "no-import":
    raise ImportError("libzenith.so.1: cannot open shared object file")

__version__ = "2.4.0" if FAULT == "too-old" else "2.13.0"
float64, float32, bfloat16, float16 = "float64", "float32", "bfloat16", "float16"
version = Namespace(cuda=None, hip=None, xpu=None, debug=False)
backends = Namespace(
    cpu=Namespace(get_cpu_capability=lambda: "TOY"),
    cudnn=Namespace(allow_tf32=True),
    cuda=Namespace(
        matmul=Namespace(allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True)
    ),
)


def rounded(array, dtype):
    """To the nearest number of the dtype, as float32."""
    array = np.asarray(array, dtype=np.float32)
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float32)
    if dtype == "float32":
        return array
    cut = {"bfloat16": 16, "tf32": 13}[dtype]
    bits = array.view(np.uint32).astype(np.uint64)
    bits = (bits + (1 << (cut - 1)) - 1 + ((bits >> cut) & 1)) >> cut << cut
    return bits.astype(np.uint32).view(np.float32)


def product(left, right):
    return np.einsum("...mn,...nk->...mk", left, right)  # no BLAS: its threads stall where others use the cores


class Tensor:
    def __init__(self, array, dtype="float32"):
        self.array, self.dtype = array, dtype

    def to(self, *where):
        dtype = next((each for each in where if each in ("float64", "float32", "bfloat16", "float16")), None)
        if dtype in (None, "float64") or self.array.dtype == bool:
            return Tensor(self.array, self.dtype)
        return Tensor(rounded(self.array, dtype), dtype)

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self.array, dtype=np.float64)


def from_numpy(array):
    return Tensor(array)


def matmul(left, right):
    a, b = left.array, right.array
    if FAULT == "tf32" and left.dtype == "float32":
        a, b = rounded(a, "tf32"), rounded(b, "tf32")
    value = rounded(product(a, b), left.dtype)
    if FAULT == "matmul":
        value[-1, -1] += 1
    if FAULT == "nan":
        value[0, 0] = np.nan
    if FAULT == "shape":
        value = value[:-1]
    return Tensor(value, left.dtype)


def attend(query, key, value, attn_mask=None, is_causal=False):
    if FAULT == "refuses":
        raise RuntimeError("no kernel takes this \x1b[2Jhead size")
    length = query.array.shape[-2]
    seen = np.tri(length, dtype=bool) if is_causal else np.ones((length, length), dtype=bool)
    if attn_mask is not None and FAULT != "mask":
        seen = attn_mask.array
    scores = product(query.array, key.array.swapaxes(-1, -2)) * (query.array.shape[-1] ** -0.5)
    if FAULT == "attention":
        scores = scores * 1.01
    scores = np.where(seen, rounded(scores, query.dtype), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = rounded(weights / weights.sum(-1, keepdims=True), query.dtype)
    return Tensor(rounded(product(weights, value.array), query.dtype), query.dtype)


def available():
    if FAULT == "dies":
        print("zenith: fatal: firmware", file=sys.stderr, flush=True)
        os.abort()
    if FAULT == "hangs":
        time.sleep(600)
    if FAULT == "warns":
        warnings.warn("the driver on your system is too old", stacklevel=1)
    return FAULT not in ("missing", "warns")


def memory(index):
    if FAULT == "raises":
        raise RuntimeError("Native API failed. UR_RESULT_ERROR_DEVICE_LOST")
    return (2**20 if FAULT == "full" else 2**34, 2**34 + 2**20)


nn = Namespace(functional=Namespace(scaled_dot_product_attention=attend))
zenith = Namespace(
    is_available=available,
    device_count=lambda: 0 if FAULT == "no-count" else 2,
    get_device_properties=lambda index: Namespace(name="Zenith 1000", total_memory=2**34),
    mem_get_info=memory,
)


def get_device_module(kind):
    return zenith


def set_float32_matmul_precision(precision):
    return None


def get_float32_matmul_precision():
    return "highest"


def are_deterministic_algorithms_enabled():
    return False


def get_num_threads():
    return 1
