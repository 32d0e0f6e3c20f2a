"""scikit-learn's checks of estimators, as its own tests apply them, for accelerated classes."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from class_cases import all_classes
from sklearn.utils._test_common.instance_generator import _construct_instances
from sklearn.utils.estimator_checks import estimator_checks_generator

__all__ = ["Check", "checks"]


class Check(NamedTuple):
    """One check of one class.

    Attributes
    ----------
    key : str
        The class, as `class_cases.key_of` names it.
    name : str
        The check.
    est, plain : estimator
        With the same hyperparameters: small and quick.
    run : callable
        Takes the estimator, and raises where the check fails.
    """

    key: str
    name: str
    est: Any
    plain: Any
    run: Callable[[Any], None]

    def error(self) -> Exception | None:
        """Return what the check raises for the accelerated class, or None."""
        return self._error(self.est)

    def error_of_the_original(self) -> Exception | None:
        """Return what it raises for scikit-learn's class, or None."""
        return self._error(self.plain)

    def _error(self, estimator: Any) -> Exception | None:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                self.run(estimator)
            except Exception as error:
                return error
        return None


def checks() -> Iterator[Check]:
    """Yield every check of every accelerated class of scikit-learn's."""
    for key, cls in all_classes().items():
        original: Any = cls._accelsk_original  # type: ignore[attr-defined]
        if original.__module__.startswith("sklearn."):
            for small in _construct_instances(original):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # encoders of labels have no checks
                    pairs = list(estimator_checks_generator(small))
                for plain, run in pairs:
                    est = cls(**plain.get_params(deep=False))
                    yield Check(key, _name(run), est, plain, run)


def _name(check: Any) -> str:
    while hasattr(check, "func"):
        check = check.func
    return check.__name__
