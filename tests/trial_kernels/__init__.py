"""Attention kernels for the tests of `conformance attention`, right ones and wrong ones."""
