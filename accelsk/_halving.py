"""Searches by successive halving; they are public once scikit-learn's experiment is enabled."""

from __future__ import annotations

from sklearn.model_selection import _search_successive_halving

from accelsk._search import Search

__all__ = ["HalvingGridSearchCV", "HalvingRandomSearchCV"]


class HalvingGridSearchCV(
    Search, _search_successive_halving.HalvingGridSearchCV, stands_in=True
): ...


class HalvingRandomSearchCV(
    Search, _search_successive_halving.HalvingRandomSearchCV, stands_in=True
): ...
