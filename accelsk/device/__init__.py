"""All that touches CUDA: whether a GPU can be used, transfers, memory, faults.

Importing this package imports no GPU library.
"""
