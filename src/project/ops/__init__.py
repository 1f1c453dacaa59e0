"""Operators of one's own: autograd functions in Python, kernels in C++ and CUDA. docs/operators.md
has the pattern.
"""
