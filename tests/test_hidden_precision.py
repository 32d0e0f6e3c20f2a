"""float32 that scikit-learn does not see, or sees alone, gives attributes in scikit-learn's dtypes.

Lists, frames without NumPy's dtypes and another byte order: some classes read float32 there, others
make float64 of it. The engines run on the double of CuPy.
"""

from __future__ import annotations

import warnings

import device_double
import numpy as np
import pytest
from class_cases import all_classes, case_of

import accelsk


def _polars(X):
    pl = pytest.importorskip("polars")
    return pl.DataFrame({f"c{i}": np.ascontiguousarray(X[:, i]) for i in range(X.shape[1])})


_CONTAINERS = {
    "rows": list,
    "polars": _polars,
    "other byte order": lambda X: X.astype(X.dtype.newbyteorder()),
}
#: t-SNE reads the shape of X before it makes an array of it.
_CLASSES = {
    key: cls
    for key, cls in all_classes().items()
    if getattr(case_of(cls).data().X, "dtype", None) == np.float64 and key != "manifold.TSNE"
}


def _dtypes(estimator):
    return {
        name: value.dtype
        for name, value in vars(estimator).items()
        if name.endswith("_") and isinstance(value, np.ndarray)
    }


@pytest.mark.parametrize("container", _CONTAINERS)
@pytest.mark.parametrize("key", _CLASSES)
def test_attributes_have_the_dtypes_of_scikit_learn(key, container, monkeypatch):
    device_double.install(monkeypatch)
    cls = _CLASSES[key]
    case = case_of(cls)
    X, y, *_ = case.data()
    given = _CONTAINERS[container](X.astype(np.float32))
    with warnings.catch_warnings(), accelsk.config_context(device="gpu"):
        warnings.simplefilter("ignore")
        theirs = cls._accelsk_original(**case.parameters).fit(given, y)
        ours = cls(**case.parameters).fit(given, y)
    ours._accelsk_fetch()
    found, expected = _dtypes(ours), _dtypes(theirs)
    assert {name: found.get(name) for name in expected} == expected
