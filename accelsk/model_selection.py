"""`sklearn.model_selection`, with searches and cross-validation that keep data on the device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sklearn.model_selection import _search, _validation

from accelsk import registry
from accelsk._mirror import mirror
from accelsk._residence import Residence, in_one_process, residence
from accelsk._search import Search
from accelsk.device.foreign import adopted, in_kind
from accelsk.device.transfer import on_host, to_device, to_host
from accelsk.metrics._scorers import plain
from accelsk.residency import mended, rewinding

if TYPE_CHECKING:
    from sklearn.model_selection import *  # noqa: F403

__all__, _get, __dir__ = mirror(__name__)


def __getattr__(name: str) -> Any:
    value = _get(name)  # an error, until scikit-learn's experiment is enabled
    if name in ("HalvingGridSearchCV", "HalvingRandomSearchCV"):
        from accelsk import _halving

        return getattr(_halving, name)
    return value


class GridSearchCV(Search, _search.GridSearchCV, stands_in=True): ...


class RandomizedSearchCV(Search, _search.RandomizedSearchCV, stands_in=True): ...


def _resident(
    original: Callable[..., Any], *, predicts: bool = False, repeats: bool = False
) -> Callable[..., Any]:
    """Return a function that does as `original` does, with the data on the device.

    Parameters
    ----------
    original : callable
        A function of scikit-learn's that fits an estimator to folds.
    predicts : bool, default=False
        Whether it returns predictions rather than scores.
    repeats : bool, default=False
        Whether it fits several candidates to the same rows.
    """
    signature = inspect.signature(original)

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            given = arguments["X"]
            X, y = arguments["X"], arguments["y"] = adopted(given), adopted(arguments["y"])
            estimator = arguments["estimator"]
            if "scoring" in arguments:
                arguments["scoring"] = plain(arguments["scoring"])
        except (KeyError, TypeError):
            return original(*args, **kwargs)
        home = None
        if not arguments.get("exploit_incremental_learning"):
            method = arguments.get("method", "fit")
            home = residence(
                estimator, X, y, repeats=repeats, answers_on_host=predicts, method=method
            )
        cv = arguments["cv"]
        if hasattr(cv, "__next__"):  # there may be a second go
            arguments["cv"] = list(cv)
        as_given = dict(arguments)

        def run(again: bool) -> Any:
            arguments.update(as_given)
            if again or home is None or not _settle(home, arguments):
                arguments.update((k, to_host(v)) for k, v in arguments.items())
            return original(*bound.args, **bound.kwargs)

        with in_one_process(original.__name__, home, estimator, X, y, arguments.get("n_jobs")):
            result = mended(run, rewinding(estimator, cv, arguments.get("random_state")))
        if predicts and not on_host(X) and _numeric(result):
            return in_kind(to_device(result), given)
        return result

    ours.__module__ = __name__
    registry.add_function(original, ours)
    return ours


def _numeric(result: Any) -> bool:
    return getattr(getattr(result, "dtype", None), "kind", "") in set("biuf")


def _settle(home: Residence, arguments: dict[str, Any]) -> bool:
    """Put stand-ins into `arguments`; return whether all of them could be made."""
    try:
        splitter = home.splitter(arguments["cv"])
    except Exception:  # scikit-learn will say what is wrong with it
        return False
    arguments.update(X=home.X, y=home.y, cv=splitter)
    if "scoring" in arguments:
        arguments["scoring"] = home.scoring(arguments["scoring"])
    for name in ("params", "fit_params"):
        if arguments.get(name):
            given = arguments[name]
            arguments[name] = {key: home.parameter(key, value) for key, value in given.items()}
    return True


cross_validate = _resident(_validation.cross_validate)
cross_val_score = _resident(_validation.cross_val_score)
cross_val_predict = _resident(_validation.cross_val_predict, predicts=True)
learning_curve = _resident(_validation.learning_curve)
validation_curve = _resident(_validation.validation_curve, repeats=True)
permutation_test_score = _resident(_validation.permutation_test_score)
