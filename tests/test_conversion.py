"""Accelerated and plain estimators turn into each other; anybody's class can be accelerated."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm
from comparison import assert_same, fitted
from engine import GENERIC, AcceleratedLine, Line, LineOnNumpy, engine_of
from sklearn.base import BaseEstimator, is_regressor
from sklearn.linear_model import LogisticRegression

import accelsk
import accelsk.linear_model
from accelsk import registry
from accelsk.estimator import SLOT, Accelerated

pytestmark = pytest.mark.usefixtures("registered")


# to_sklearn and from_sklearn


def test_to_sklearn_gives_the_plain_class_with_all_attributes(data):
    line = AcceleratedLine(shrinkage=0.5).fit(*data)
    line.note = "mine"
    plain = accelsk.to_sklearn(line)
    assert type(plain) is Line
    assert plain.shrinkage == 0.5
    assert plain.note == "mine"
    assert SLOT not in vars(plain)
    assert plain.coef_ is line.coef_
    assert_same(plain.predict(data[0]), Line(shrinkage=0.5).fit(*data).predict(data[0]))


def test_from_sklearn_predicts_on_the_engine(data):
    plain = Line().fit(*data)
    line = accelsk.from_sklearn(plain)
    assert type(line) is AcceleratedLine
    with accelsk.config_context(on_fallback="raise"):
        assert_same(line.predict(data[0]), plain.predict(data[0]))
    assert engine_of(line).counts == {"restore": 1, "predict": 1}


def test_both_ways_give_the_same_model(labelled):
    theirs = LogisticRegression(C=0.5).fit(*labelled)
    back = accelsk.to_sklearn(accelsk.from_sklearn(theirs))
    assert type(back) is LogisticRegression
    assert_same(fitted(back), fitted(theirs))
    assert back.get_params() == theirs.get_params()


def test_changes_after_the_conversion_stay_apart(data):
    line = AcceleratedLine().fit(*data)
    plain = accelsk.to_sklearn(line)
    plain.coef_ = np.zeros(3)
    plain.shrinkage = 9
    assert_same(line.predict(data[0]), Line().fit(*data).predict(data[0]))
    assert line.shrinkage == 0.0


def test_unfitted_estimators_convert_too():
    assert accelsk.to_sklearn(AcceleratedLine()).get_params() == Line().get_params()
    assert accelsk.from_sklearn(Line(shrinkage=2)).shrinkage == 2


@pytest.mark.parametrize(
    ("module", "name"),
    [("sklearn.linear_model", "Ridge"), ("umap", "UMAP"), ("hdbscan", "HDBSCAN")],
)
def test_from_sklearn_finds_classes_that_are_not_imported_yet(module, name):
    import os
    import subprocess
    import sys
    from pathlib import Path

    pytest.importorskip(module)
    ours = f"accelsk.{module.removeprefix('sklearn.')}"
    code = f"""
import {module}, sys, accelsk
assert "{ours}" not in sys.modules
print(type(accelsk.from_sklearn({module}.{name}())).__module__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == ours


@pytest.mark.parametrize("est", [sklearn.linear_model.HuberRegressor(), object(), 3])
def test_from_sklearn_of_anything_else_is_a_type_error(est):
    with pytest.raises(TypeError, match="has no accelerated class"):
        accelsk.from_sklearn(est)


class Mine(AcceleratedLine):
    pass


@pytest.mark.parametrize("est", [AcceleratedLine(), Mine()])
def test_from_sklearn_of_an_accelerated_one_says_so(est):
    with pytest.raises(TypeError, match="is accelerated already"):
        accelsk.from_sklearn(est)


@pytest.mark.parametrize("convert", [accelsk.from_sklearn, accelsk.to_sklearn])
@pytest.mark.parametrize("cls", [AcceleratedLine, Line])
def test_conversion_of_a_class_asks_for_an_instance(convert, cls):
    with pytest.raises(TypeError, match=f"an instance is needed, not the class {cls.__name__}"):
        convert(cls)


@pytest.mark.parametrize("est", [Line(), 3, Mine()])
def test_to_sklearn_of_anything_else_is_a_type_error(est):
    with pytest.raises(TypeError, match="is not an accelerated class"):
        accelsk.to_sklearn(est)


# is_proxy


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (AcceleratedLine, True),
        (AcceleratedLine(), True),
        (Mine, True),
        (Mine(), True),
        (accelsk.linear_model.Ridge, True),
        (Line, False),
        (Line(), False),
        (sklearn.linear_model.Ridge(), False),
        (Accelerated, False),
        (accelsk.linear_model, False),
        (None, False),
        (3, False),
    ],
)
def test_is_proxy(thing, expected):
    assert accelsk.is_proxy(thing) is expected


# register


def test_registered_class_is_a_real_subclass():
    assert issubclass(AcceleratedLine, Line)
    assert isinstance(AcceleratedLine(), Line)
    assert is_regressor(AcceleratedLine())
    assert AcceleratedLine.__doc__ == Line.__doc__
    assert AcceleratedLine.fit.__doc__ == Line.fit.__doc__
    assert (AcceleratedLine.__module__, AcceleratedLine.__qualname__) == (
        "engine",
        "AcceleratedLine",
    )


def test_register_takes_name_and_module_from_the_caller_by_default():
    cls = accelsk.register(Line, [LineOnNumpy()])
    assert (cls.__name__, cls.__module__) == ("Line", __name__)
    cls = accelsk.register(Line, [LineOnNumpy()], name="Other", module="elsewhere")
    assert (cls.__name__, cls.__module__) == ("Other", "elsewhere")


def test_later_registration_takes_the_place_of_an_earlier_one():
    cls = accelsk.register(Line, [LineOnNumpy()])
    assert type(accelsk.from_sklearn(Line())) is cls
    assert accelsk.is_proxy(AcceleratedLine)


def test_registry_hands_out_a_copy():
    registry.accelerated_classes().clear()
    assert Line in registry.accelerated_classes()


def test_class_statement_does_the_same(data):
    class Line2(Accelerated, Line, engines=[LineOnNumpy()]):
        """Has code of its own."""

        def extra(self):
            return self.coef_.sum()

    assert Line2._accelsk_original is Line
    fitted_line = Line2().fit(*data)
    assert engine_of(fitted_line).counts["fit"] == 1
    assert fitted_line.extra() == pytest.approx(Line().fit(*data).coef_.sum())


@pytest.mark.parametrize("original", [3, Line(), object, int])
def test_register_of_what_is_no_estimator_is_a_type_error(original):
    with pytest.raises(TypeError, match="is not a class with scikit-learn's get_params"):
        accelsk.register(original, [LineOnNumpy()])


def test_register_of_an_accelerated_class_is_a_type_error():
    with pytest.raises(TypeError, match="Ridge is accelerated already"):
        accelsk.register(accelsk.linear_model.Ridge, [LineOnNumpy()])


def test_register_without_engines_is_an_error():
    with pytest.raises(ValueError, match="engines"):
        accelsk.register(Line, [])


def test_engine_for_a_method_that_the_class_lacks_is_an_error():
    class Wrong(LineOnNumpy):
        methods = ("fit", "transform")

    with pytest.raises((AttributeError, TypeError), match="transform"):
        accelsk.register(Line, [Wrong()])
    assert registry.accelerated_classes()[Line] is AcceleratedLine


def test_two_originals_of_one_name_do_not_mix():
    class Line(BaseEstimator):  # as the one of `engine`
        def fit(self, X, y):
            self.n_features_in_ = 3
            self.total_ = float(np.sum(y))
            return self

    class Fits(LineOnNumpy):
        methods = ("fit",)

    cls = accelsk.register(Line, [Fits()])
    assert cls._accelsk_original is Line
    assert AcceleratedLine._accelsk_original is not Line


def test_generic_classes_of_this_suite_are_not_in_the_registry_otherwise():
    registry._classes.clear()
    assert all(cls._accelsk_original not in registry._classes for cls in GENERIC.values())
