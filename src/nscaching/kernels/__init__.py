"""Compiled kernels, and what this machine can compile."""
