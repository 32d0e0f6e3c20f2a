"""Whether the data of a search or a cross-validation stay on the device, and how they do.

scikit-learn's own code runs, with stand-ins: `Resident` data, a splitter that sees the data on the
host, scorers whose functions are those of `accelsk.metrics`. What is not known to take data on the
device gets them on the host.
"""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np
import sklearn
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from accelsk import _sklearn, dispatch, registry
from accelsk.config import current
from accelsk.data import Argument, describe
from accelsk.device import probe
from accelsk.device.resident import Resident, Session, Source
from accelsk.device.transfer import to_host
from accelsk.estimator import Accelerated, Counterpart

__all__ = ["Residence", "in_one_process", "original_scorer", "residence", "takes_residents"]

logger = logging.getLogger("accelsk")

#: Of the device's memory, what X may take: a fold of it and what is computed of that come on top.
_SHARE = 4


# Which estimators


def _leading(estimator: Any) -> Any:
    """Return the accelerated estimator that gets X as it comes, or None."""
    if not isinstance(estimator, Counterpart) or type(estimator) is not estimator._accelsk_class:
        return None
    if isinstance(estimator, Accelerated):
        return estimator
    for _, step in getattr(estimator, "steps", ()):
        if step is not None and not isinstance(step, str):
            return _leading(step)
    return _leading(getattr(estimator, "estimator", None))


def takes_residents(estimator: Any, method: str) -> bool:
    """Whether a method of an estimator may be called with data on the device."""
    if _leading(estimator) is None:
        return False
    return not isinstance(estimator, Accelerated) or (
        dispatch.method_of(type(estimator), method) is not None and method not in vars(estimator)
    )


def _runs_on_gpu(estimator: Any, X: Any, y: Any) -> bool:
    method = dispatch.method_of(type(estimator), "fit")
    if method is None:
        return False
    names = method.signature.parameters
    arguments = {"X": X, "y": y} if "y" in names else {"X": X}
    return dispatch.plan(estimator, method, (), arguments).engine is not None


def _any_on_gpu(estimator: Any, X: Any, y: Any) -> bool:
    """Whether the GPU would be used, as far as can be told, by an estimator or one inside it."""
    if current().device == "cpu" or probe.unusable() is not None:
        return False
    shape = getattr(X, "shape", ())
    if len(shape) != 2:
        return False
    # what comes to an inner estimator is not known, but its size is about that of X
    stand_in = np.broadcast_to(np.float64(0), shape)
    inner = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    return any(
        _runs_on_gpu(one, stand_in, y)
        for one in (estimator, *inner)
        if isinstance(one, Accelerated) and not isinstance(one, type)
    )


@contextmanager
def in_one_process(
    name: str, home: Residence | None, estimator: Any, X: Any, y: Any, n_jobs: Any
) -> Iterator[None]:
    """Keep joblib from starting workers where these would compete for the GPU.

    Parameters
    ----------
    name : str
        What the log is to call it.
    home : Residence or None
        Where the data are, if they are on the device.
    estimator, X, y, n_jobs
        As in scikit-learn.
    """
    try:
        competing = joblib.effective_n_jobs(n_jobs) != 1 and (
            home is not None or _any_on_gpu(estimator, X, y)
        )
    except Exception:  # scikit-learn will say what is wrong with them
        competing = False
    if not competing:
        yield
        return
    logger.info("%s: n_jobs has no effect, the GPU is used from this process alone", name)
    with joblib.parallel_config(backend="sequential"):
        yield


# Stand-ins


class _Splitter:
    """A splitter that gets the data on the host, and whose folds the session knows."""

    def __init__(self, splitter: Any, session: Session) -> None:
        self._splitter = splitter
        self._session = session

    def split(self, X: Any, y: Any = None, *args: Any, **kwargs: Any) -> Iterator[tuple]:
        splits = []
        for split in self._splitter.split(to_host(X), to_host(y), *args, **kwargs):
            splits.append(split)
            yield split
        if isinstance(X, Resident) and X.rows is None:
            X.source.folds = self._session.learn(splits, len(X))

    def get_n_splits(self, X: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> int:
        return self._splitter.get_n_splits(to_host(X), to_host(y), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._splitter, name)

    def __repr__(self) -> str:
        return repr(self._splitter)


class _OnHost:
    """A scorer of the user's: it gets data on the host, as ever."""

    def __init__(self, scorer: Any) -> None:
        self.__wrapped__ = scorer

    def __call__(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(estimator, *map(to_host, args), **_fetched(kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def _fetched(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: to_host(value) for name, value in arguments.items()}


class _OnDevice(_sklearn.Scorer):
    """A scorer of scikit-learn's whose function takes data on the device."""

    accelsk_original: Any

    def _score(
        self, method_caller: Callable, estimator: Any, X: Any, y_true: Any, **kwargs: Any
    ) -> Any:
        methods = self._response_method
        methods = (methods,) if isinstance(methods, str) else methods
        offered = [name for name in methods if hasattr(estimator, name)]
        if not offered or not takes_residents(estimator, offered[0]):
            X = to_host(X)
        return super()._score(method_caller, estimator, X, y_true, **kwargs)


def _score_function(function: Any) -> Any:
    """Return what computes the same as scikit-learn's `function`, wherever data are."""
    import accelsk.metrics  # noqa: F401 - puts them on record

    ours = registry.accelerated_functions()
    if function in ours.values():
        return function
    if function in ours:
        return ours[function]

    @functools.wraps(function)
    def on_host_only(*args: Any, **kwargs: Any) -> Any:
        return function(*map(to_host, args), **_fetched(kwargs))

    return on_host_only


def _stand_in(scorer: Any, estimator: Any) -> Any:
    """Return a scorer that does as `scorer` does, for data on the device."""
    if isinstance(scorer, _sklearn.MultimetricScorer):
        scorers = {name: _stand_in(one, estimator) for name, one in scorer._scorers.items()}
        return _sklearn.MultimetricScorer(scorers=scorers, raise_exc=scorer._raise_exc)
    if type(scorer) is _sklearn.Scorer:
        ours = copy.copy(scorer)
        ours.__class__ = _OnDevice
        ours._score_func = _score_function(scorer._score_func)
        ours.accelsk_original = scorer
        return ours
    if isinstance(scorer, _sklearn.PassthroughScorer) and takes_residents(estimator, "score"):
        return scorer
    return _OnHost(scorer)


def original_scorer(scorer: Any) -> Any:
    """Return the scorer for which another one has stood."""
    if isinstance(scorer, dict):
        return {name: original_scorer(one) for name, one in scorer.items()}
    if isinstance(scorer, _OnHost):
        return scorer.__wrapped__
    return scorer.accelsk_original if isinstance(scorer, _OnDevice) else scorer


# Data


class Residence:
    """The data of one search or cross-validation, on the device.

    Attributes
    ----------
    X : Resident
    y : Resident, or as the caller gave it
        Text is coded once for each fold.
    """

    def __init__(self, estimator: Any, X: Resident, y: Any, session: Session) -> None:
        self.estimator = estimator
        self.X = X
        self.y = y
        self._session = session

    def splitter(self, cv: Any) -> _Splitter:
        """Return what stands for the splitter that scikit-learn makes of `cv`."""
        y = to_host(self.y)
        return _Splitter(check_cv(cv, y, classifier=is_classifier(self.estimator)), self._session)

    def scorer(self, scorer: Any) -> Any:
        """Return what stands for a scorer."""
        return _stand_in(scorer, self.estimator)

    def scoring(self, scoring: Any) -> Any:
        """Return what stands for the argument ``scoring``; what is wrong with it stays wrong."""
        if scoring is None and takes_residents(self.estimator, "score"):
            return None
        try:
            scorer = self.scorer(check_scoring(self.estimator, scoring=scoring))
        except Exception:
            return scoring
        return scorer._scorers if isinstance(scorer, _sklearn.MultimetricScorer) else scorer

    def parameter(self, name: str, value: Any) -> Any:
        """Return what stands for a parameter of ``fit``: weights of the rows go up, too."""
        if name.rpartition("__")[2] != "sample_weight":
            return value
        resident = _resident(describe(value), len(self.X), self._session)
        return value if resident is None else resident


def _resident(given: Argument, n_rows: int, session: Session, **options: Any) -> Resident | None:
    if isinstance(given.value, Resident):
        return Resident(given.value.source, given.value.rows, **options)
    text = given.dtype is not None and given.dtype.kind in "OU" and len(given.shape) == 1
    if given.kind not in ("numpy", "cupy", "frame") or given.narrow:
        return None
    if not (given.numeric or text):
        return None
    if given.shape[:1] != (n_rows,) or 0 in given.shape or len(given.shape) > 2:
        return None
    return Resident(Source(given, session), **options)


def _too_large(given: Argument) -> bool:
    gpu = probe.gpu()
    limit = current().device_memory_limit or (None if gpu is None else gpu.memory)
    assert given.dtype is not None
    n_bytes = given.dtype.itemsize * given.shape[0] * given.shape[-1]
    return limit is not None and n_bytes * _SHARE > limit


def _writes(estimator: Any) -> bool:
    """Whether an estimator may write into X: the rows on the device are everybody's."""
    return any(
        name.rpartition("__")[2] in ("copy", "copy_X", "copy_x") and value is False
        for name, value in estimator.get_params(deep=True).items()
    )


def residence(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    repeats: bool,
    answers_on_host: bool = False,
    method: str = "fit",
) -> Residence | None:
    """Return the residence of X and y, or None where they are to stay where they are.

    Parameters
    ----------
    estimator : estimator
        What is to be fitted to the rows of each fold.
    X, y : array-like
    repeats : bool
        Whether there are several candidates, which may have steps in common.
    answers_on_host : bool, default=False
        Whether predictions go to the host at once.
    method : str, default="fit"
        Another method that is called with rows of X.
    """
    if current().device == "cpu" or probe.unusable() is not None:
        return None
    if sklearn.get_config()["array_api_dispatch"]:
        return None
    try:
        leading = _leading(estimator)
        if leading is None or not takes_residents(estimator, method) or _writes(estimator):
            return None
        if estimator.__sklearn_tags__().input_tags.pairwise:
            return None
        if any("_skl_callbacks" in vars(one) for one in (estimator, leading)):
            return None
        given = describe(X)
        session = X.source.session if isinstance(X, Resident) else Session(repeats=False)
        session.repeats = session.repeats or repeats
        if len(given.shape) != 2:
            return None
        residents = _resident(given, given.shape[0], session, answers_on_host=answers_on_host)
        if residents is None or not given.numeric or _too_large(given):
            return None
        _ = residents.feature_names  # raises where scikit-learn will
        resident_y = None if y is None else _resident(describe(y), len(residents), session)
        y = y if resident_y is None else resident_y
        if not _runs_on_gpu(leading, residents, y):
            return None
        return Residence(estimator, residents, y, session)
    except Exception as error:  # whatever is wrong, scikit-learn will say so
        logger.debug("data stay on the host", exc_info=error)
        return None
