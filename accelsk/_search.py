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
        home = (
            None
            if vars(self).get("_skl_callbacks")
            else residence(self.estimator, X, y, repeats=True)
        )
        name = f"{self._accelsk_original.__name__}.fit"

        def run(again: bool) -> Any:
            if home is not None and not again:
                return self._accelsk_fit(home, params)
            return super(Search, self).fit(*_on_host(X, y), **params)

        with in_one_process(name, home, self.estimator, X, y, self.n_jobs):
            cv = self.cv
            if hasattr(cv, "__next__"):  # there may be a second go
                self.cv = list(cv)
            try:
                return mended(run, rewinding(self))
            finally:
                self.cv = cv

    def _accelsk_fit(self, home: Residence, params: dict[str, Any]) -> Any:
        try:
            splitter = home.splitter(self.cv)
        except Exception:  # scikit-learn will say what is wrong with it
            return super().fit(*_on_host(home.X, home.y), **params)
        params = {name: home.parameter(name, value) for name, value in params.items()}
        given = self.cv
        self.cv, self._accelsk_residence = splitter, home
        try:
            return super().fit(home.X, home.y, **params)
        finally:
            self.cv = given
            del self._accelsk_residence
            own = self.__dict__
            if own.get("_checked_cv_orig") is splitter:
                own["_checked_cv_orig"] = splitter._splitter
            if "scorer_" in own:
                own["scorer_"] = original_scorer(own["scorer_"])

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


def _on_host(X: Any, y: Any) -> tuple[Any, Any]:
    return to_host(X), to_host(y)
