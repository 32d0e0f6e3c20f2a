"""`sklearn.pipeline`, whose pipelines keep data on the device between accelerated steps."""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sklearn import pipeline as _pipeline

from accelsk._joined import Joining, standing_in
from accelsk._mirror import mirror
from accelsk.composite import Composite
from accelsk.engines.base import fits
from accelsk.estimator import Accelerated
from accelsk.residency import Part, Segment, Stays, is_ours, takes

if TYPE_CHECKING:
    from sklearn.pipeline import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)


class Pipeline(
    Composite,
    _pipeline.Pipeline,
    stands_in=True,
    methods=(
        *("fit", "fit_transform", "fit_predict", "transform", "inverse_transform"),
        *("predict", "predict_proba", "predict_log_proba", "decision_function"),
        *("score", "score_samples"),
    ),
):
    def _accelsk_takes(self, method: str, X: Any, y: Any) -> bool:
        calls = self._accelsk_calls(method)
        return bool(calls) and takes(*calls[0], X, y)

    def _accelsk_takes_targets(self) -> bool:
        return all(
            is_ours(step) and (not isinstance(step, Composite) or step._accelsk_takes_targets())
            for step, _ in self._accelsk_calls("fit")
        )

    def _accelsk_calls(self, method: str) -> list[tuple[Any, str]]:
        """Return the steps, passed-through ones left out, and what is called of each, in order."""
        if fits(method) and self.memory is not None:
            return []  # what is cached is what scikit-learn would cache
        try:
            steps = [step for _, step in self.steps if step is not None and step != "passthrough"]
        except (TypeError, ValueError):  # scikit-learn will say what is wrong with them
            return []
        if method == "inverse_transform":
            return [(step, method) for step in reversed(steps)]
        between = "fit_transform" if fits(method) else "transform"
        last = self.steps[-1][1] if self.steps else None
        return [(step, method if step is last else between) for step in steps]

    def _accelsk_parts(self, method: str, y: Any, stays: Stays) -> list[Part]:
        calls = self._accelsk_calls(method)
        parts, segment = [], Segment()
        for place, (step, called) in enumerate(calls, 1):
            if not is_ours(step):
                segment = Segment()
                continue
            kept = stays if place == len(calls) else _handed_on(calls[place], y)
            # a fit passes over the rows, then makes of them what stays
            shared = Segment() if called == "fit_transform" and kept(None) else None
            parts.append(Part(step, called, kept, segment, shared, _run_of(calls[place:])))
        return parts


def _run_of(calls: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Return the leading calls that are of accelerated estimators."""
    return list(
        takewhile(lambda call: is_ours(call[0]) and isinstance(call[0], Accelerated), calls)
    )


def _handed_on(following: tuple[Any, str], y: Any) -> Stays:
    """Return whether a result may stay on the device, being for a method of the next step.

    That is asked once, ahead: should the step hand this very result on, it sees to a host copy.
    """
    answer = cache(lambda: takes(*following, None, y if fits(following[1]) else None))
    return lambda _: answer()


class FeatureUnion(
    Joining,
    Composite,
    _pipeline.FeatureUnion,
    stands_in=True,
    methods=("fit", "fit_transform", "transform"),
):
    def _accelsk_held(self, method: str) -> list[Any]:
        return [one for _, one in self.transformer_list]


make_pipeline = standing_in(__name__, _pipeline.make_pipeline, Pipeline)
make_union = standing_in(__name__, _pipeline.make_union, FeatureUnion)
