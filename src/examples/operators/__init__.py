"""Operators in Python, C++ and CUDA, for the layers of the text experiment."""
