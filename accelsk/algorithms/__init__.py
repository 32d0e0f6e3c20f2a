"""Array algorithms that engines need beside their library, for NumPy and CuPy alike.

Each function takes the array namespace `xp` of its arguments, so that it is tested on NumPy
against scikit-learn and runs on the device unchanged.
"""
