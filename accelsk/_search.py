"""What the searches of `accelsk.model_selection` have in common."""

from __future__ import annotations

from typing import Any

from sklearn.model_selection._search import GridSearchCV

from accelsk._residence import Residence, in_one_process, original_scorer, residence
from accelsk.composite import Composite
from accelsk.device.foreign import adopted
from accelsk.device.transfer import to_host
from accelsk.residency import mended, rewinding

__all__ = ["Search"]


class Search(Composite):
    """What searches have in common."""

    cv: Any
    _accelsk_residence: Residence | None = None

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        X, y = adopted(X), adopted(y)
        watched = bool(vars(self).get("_skl_callbacks"))
        home = None if watched else residence(self.estimator, X, y, repeats=True)
        given = cv = self.cv
        if hasattr(given, "__next__") and not watched:  # there may be a second go
            cv = list(given)
        name = f"{self._accelsk_original.__name__}.fit"

        def run(again: bool) -> Any:
            splitter = None if home is None or again else _splitter(home, cv)
            if home is not None and splitter is not None:
                there = {name: home.parameter(name, value) for name, value in params.items()}
                return self._accelsk_fit(splitter, home, home.X, home.y, there)
            if cv is given:
                return super(Search, self).fit(*_on_host(X, y), **params)
            return self._accelsk_fit(cv, None, *_on_host(X, y), params)

        with in_one_process(name, home, self.estimator, X, y, self.n_jobs):
            return mended(run, rewinding(self))

    def _accelsk_fit(
        self, cv: Any, home: Residence | None, X: Any, y: Any, params: dict[str, Any]
    ) -> Any:
        """Fit with another `cv`, which nobody gets to see: other threads may be at the search."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, cv=cv, _accelsk_residence=home)
        try:
            super(Search, twin).fit(X, y, **params)
        finally:
            found = twin.__dict__
            del found["cv"], found["_accelsk_residence"]
            if home is not None and found.get("_checked_cv_orig") is cv:
                found["_checked_cv_orig"] = cv._splitter  # type: ignore[union-attr]
            if "scorer_" in found:
                found["scorer_"] = original_scorer(found["scorer_"])
            own = self.__dict__
            own.update({name: found[name] for name in found if own.get(name) is not found[name]})
        return self

    def _get_scorers(self) -> Any:
        scorers, refit_metric = super()._get_scorers()
        home = self._accelsk_residence
        return (scorers if home is None else home.scorer(scorers)), refit_metric

    def _check_input_parameters(self, X: Any, y: Any, split_params: Any) -> None:
        super()._check_input_parameters(X=to_host(X), y=to_host(y), split_params=split_params)

    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Return the score of the best estimator; scorers may be of any kind."""
        return super().score(*_on_host(adopted(X), adopted(y)), **params)


Search.fit.__doc__ = GridSearchCV.fit.__doc__


def _splitter(home: Residence, cv: Any) -> Any:
    try:
        return home.splitter(cv)
    except Exception:  # scikit-learn will say what is wrong with it
        return None


def _on_host(X: Any, y: Any) -> tuple[Any, Any]:
    return to_host(X), to_host(y)
