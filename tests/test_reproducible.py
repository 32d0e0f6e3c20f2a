"""A call that the GPU would not repeat is told, and stays in scikit-learn where that is asked."""

import numpy as np
import pytest
import sklearn.cluster

import accelsk
from accelsk.engines.base import Engine, Outcome

X = np.arange(12.0).reshape(6, 2)
NOTE = "on the GPU the same random_state does not give the same result again"


class _Unsteady(Engine):
    """Gives other labels each time."""

    name = "test"
    methods = ("fit", "predict")
    repeats = False

    def unusable(self):
        return None

    def run(self, call, model):
        if call.method == "predict":
            return Outcome(result=np.zeros(len(call.X.value), np.int32))
        labels = np.random.default_rng().integers(0, 2, 6, np.int32)
        return Outcome(model=labels, attributes={"cluster_centers_": X[:2], "labels_": labels})

    def attributes(self, estimator, model):
        return {}

    def restore(self, estimator):
        return estimator.labels_


class Plain(sklearn.cluster.KMeans):
    """An estimator of this module's own."""


KMeans = accelsk.register(Plain, [_Unsteady()], name="KMeans")


def _ran(est, method="fit"):
    with accelsk.profile(quiet=True) as results:
        getattr(est, method)(X)
    return results.method_calls[f"Plain.{method}"]


@pytest.mark.parametrize("seed", [0, np.random.RandomState(0)])
def test_a_seed_keeps_the_call_in_scikit_learn_where_that_is_asked(seed):
    with accelsk.config_context(reproducible=True):
        stats = _ran(KMeans(2, random_state=seed))
    assert stats.cpu_calls == 1
    assert stats.fallback_reasons == {f"reproducible=True is set, and {NOTE}"}


def test_it_is_an_error_where_fallbacks_are():
    with (
        accelsk.config_context(reproducible=True, on_fallback="raise"),
        pytest.raises(accelsk.exceptions.FallbackError, match="reproducible=True"),
    ):
        KMeans(2, random_state=0).fit(X)


def test_without_a_seed_scikit_learn_would_not_repeat_itself_either():
    with accelsk.config_context(reproducible=True):
        assert _ran(KMeans(2)).gpu_calls == 1


def test_a_method_that_does_not_fit_draws_nothing():
    est = KMeans(2, random_state=0).fit(X)
    with accelsk.config_context(reproducible=True):
        assert _ran(est, "predict").gpu_calls == 1


def test_by_default_the_call_runs_and_the_plan_says_so(capsys):
    est = KMeans(2, random_state=0)
    assert _ran(est).gpu_calls == 1
    explained = accelsk.explain(est, X)
    assert explained.engine == "test"
    assert explained.notes == (NOTE,)
    assert f"Note: {NOTE}." in capsys.readouterr().out
    assert accelsk.explain(KMeans(2), X).notes == ()


def test_explain_tells_the_setting_from_what_is_in_the_way_otherwise(capsys):
    with accelsk.config_context(reproducible=True):
        explained = accelsk.explain(KMeans(2, random_state=0), X)
    assert explained.engine is None
    assert explained.reasons == (f"reproducible=True is set, and {NOTE}",)
    assert explained.obstacles == ()
    assert explained.notes == (NOTE,)


def test_an_engine_that_repeats_itself_is_not_concerned(monkeypatch):
    monkeypatch.setattr(_Unsteady, "repeats", True)
    with accelsk.config_context(reproducible=True):
        assert _ran(KMeans(2, random_state=0)).gpu_calls == 1


def test_the_setting_is_off_unless_it_is_made():
    assert accelsk.get_config()["reproducible"] is False
    with accelsk.config_context(reproducible=True):
        assert accelsk.get_config()["reproducible"] is True
        with accelsk.config_context(device="cpu"):
            assert accelsk.get_config()["reproducible"] is True
    assert accelsk.get_config()["reproducible"] is False


@pytest.mark.parametrize("value", [1, 0, "yes"])
def test_it_is_true_or_false(value):
    with pytest.raises(ValueError, match="reproducible must be one of"):
        accelsk.set_config(reproducible=value)
