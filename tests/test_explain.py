"""explain tells where a call would run, without running it."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.linear_model
from engine import AcceleratedLine, engine_of
from sklearn.pipeline import make_pipeline

import accelsk
from accelsk.linear_model import Ridge


def test_call_that_an_engine_can_run(data, capsys):
    explanation = accelsk.explain(AcceleratedLine(), *data)
    assert explanation.engine == "test"
    assert explanation.reasons == explanation.obstacles == ()
    assert capsys.readouterr().out == "Line.fit runs on the GPU (test).\n"
    assert not engine_of(AcceleratedLine).counts


def test_obstacles_of_the_call_are_told_from_reasons_of_the_process(data, capsys):
    engine_of(AcceleratedLine).off = "no GPU"
    explanation = accelsk.explain(AcceleratedLine(forbidden=True), *data)
    assert (explanation.engine, explanation.reasons) == (None, ("no GPU",))
    assert explanation.obstacles == ("forbidden=True",)
    assert capsys.readouterr().out.splitlines() == [
        "Line.fit runs in scikit-learn:",
        "  - no GPU",
        "  - forbidden=True",
    ]


def test_call_that_only_lacks_a_gpu_says_so(data, capsys):
    engine_of(AcceleratedLine).off = "no GPU"
    assert accelsk.explain(AcceleratedLine(), *data).obstacles == ()
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing else keeps it off a GPU."


def test_device_cpu_is_a_reason(data):
    with accelsk.config_context(device="cpu"):
        explanation = accelsk.explain(AcceleratedLine(), *data)
    assert explanation.reasons == ("device='cpu' is set",)


@pytest.mark.parametrize(
    ("estimator", "obstacles"),
    [
        (AcceleratedLine(), ()),
        (AcceleratedLine(forbidden=True), ("forbidden=True",)),
        (AcceleratedLine(forbidden="x"), ("scikit-learn rejects it (InvalidParameterError)",)),
        (Ridge(), ()),
        (Ridge(positive=True), ("positive=True",)),
        (Ridge(alpha=-1), ("scikit-learn rejects it (InvalidParameterError)",)),
    ],
)
def test_hyperparameters_alone_can_be_asked_about(estimator, obstacles):
    assert accelsk.explain(estimator).obstacles == obstacles


def test_data_is_looked_at_by_type_and_shape(data):
    X, y = data
    assert accelsk.explain(AcceleratedLine(), X[:, 0], y).obstacles == ("X has 1 dimensions",)
    assert accelsk.explain(AcceleratedLine(), X * np.nan, y).engine == "test"


def test_other_methods(data):
    line = AcceleratedLine()
    unfitted = accelsk.explain(line, data[0], method="predict")
    assert unfitted.obstacles == ("scikit-learn rejects it (NotFittedError)",)
    line.fit(*data)
    assert accelsk.explain(line, data[0], method="predict").engine == "test"
    assert accelsk.explain(line, data[0][:, :2], method="predict").obstacles == (
        "scikit-learn rejects it (ValueError)",
    )
    assert accelsk.explain(line, method="predict").engine == "test"
    assert engine_of(line).counts == {"fit": 1}


def test_method_that_no_engine_runs(data):
    explanation = accelsk.explain(AcceleratedLine().fit(*data), *data, method="score")
    assert explanation.call == "AcceleratedLine.score"
    assert explanation.obstacles == ("no engine runs score itself",)


def test_missing_method_is_an_attribute_error():
    with pytest.raises(AttributeError, match="transform"):
        accelsk.explain(AcceleratedLine(), method="transform")


@pytest.mark.parametrize(
    "estimator", [sklearn.linear_model.Ridge(), make_pipeline(sklearn.linear_model.Ridge())]
)
def test_estimator_that_is_not_accelerated(estimator, data):
    (obstacle,) = accelsk.explain(estimator, *data).obstacles
    assert obstacle.endswith("is not accelerated")


def test_estimator_that_is_not_accelerated_names_its_parts_that_are(data):
    pipeline = make_pipeline(sklearn.linear_model.Ridge(), AcceleratedLine())
    assert accelsk.explain(pipeline, *data).obstacles == (
        "Pipeline is not accelerated itself, but parts of it are: acceleratedline",
    )


@pytest.mark.parametrize("cls", [Ridge, sklearn.linear_model.Ridge])
def test_class_in_place_of_an_instance_is_a_type_error(cls):
    with pytest.raises(TypeError, match="an instance is needed, not the class Ridge"):
        accelsk.explain(cls)


@pytest.mark.parametrize("odd", [3, None, "Ridge", np.eye(2), len])
def test_what_is_no_estimator_is_a_type_error(odd):
    with pytest.raises(TypeError, match="an estimator is needed, got "):
        accelsk.explain(odd, np.eye(2))


@pytest.mark.parametrize("method", [3, None, len])
def test_method_that_is_no_name_is_a_type_error(method):
    with pytest.raises(TypeError, match="method must be the name of a method, got"):
        accelsk.explain(Ridge(), method=method)


def test_attribute_is_no_method():
    with pytest.raises(AttributeError, match="'alpha' of Ridge is no method"):
        accelsk.explain(Ridge(), method="alpha")


def test_override_of_the_users_own_is_an_obstacle(data):
    class Mine(AcceleratedLine):
        def _solve(self, X, y, weight):
            return super()._solve(X, y, weight)

    assert accelsk.explain(Mine(), *data).obstacles == ("Mine overrides _solve",)
    assert accelsk.explain(Mine()).obstacles == ("Mine overrides _solve",)
