"""Linear models that rest on moments, on the double of the device, against scikit-learn's."""

import warnings

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.model_selection
from alike import device  # noqa: F401
from class_cases import binary, classification, regression
from comparison import assert_same, fitted
from sklearn.model_selection import KFold, ShuffleSplit

import accelsk
from accelsk import linear_model
from accelsk._sklearn import VERSION

X, y, NEW, _, _ = regression()
RNG = np.random.RandomState(0)
MANY = np.c_[y, 2 * y + X[:, 1], 3 * X[:, 2] + RNG.randn(len(y))]
WEIGHT = RNG.rand(len(y)) + 0.1

#: Attributes that another number of steps changes.
STEPS = ("n_iter_", "dual_gap_")


def assert_alike(name, X, y, rtol=1e-9, skip=(), weight=None, new=NEW, **parameters):
    """Assert that ours and scikit-learn's agree in all that a fit leaves and a method answers."""
    given = {} if weight is None else {"sample_weight": weight}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = getattr(linear_model, name)(**parameters).fit(X, y, **given)
        theirs = getattr(sklearn.linear_model, name)(**parameters).fit(X, y, **given)
    found, expected = fitted(ours), fitted(theirs)
    assert found.keys() == expected.keys()
    for attribute in expected.keys() - {"_label_binarizer", *skip}:
        assert_same(found[attribute], expected[attribute], attribute, rtol)
    new = new.astype(X.dtype)
    for method in ("predict", "decision_function"):
        if hasattr(theirs, method):
            assert_same(getattr(ours, method)(new), getattr(theirs, method)(new), method, rtol)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=rtol)
    return ours, theirs


PLAIN = ["RidgeCV", "Lars", "LassoLars", "LassoLarsIC", "OrthogonalMatchingPursuit"]
PLAIN += ["BayesianRidge", "ARDRegression", "LassoCV", "ElasticNetCV"]
PLAIN += ["OrthogonalMatchingPursuitCV"]
WEIGHTED = ["RidgeCV", "BayesianRidge", "LassoCV", "ElasticNetCV"]
OUTPUTS = ["RidgeCV", "Lars", "LassoLars", "OrthogonalMatchingPursuit"]


def tolerated(name):
    return {"rtol": 1e-7, "skip": STEPS} if name in ("LassoCV", "ElasticNetCV") else {}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", PLAIN)
def test_a_fit_is_scikit_learns(name, fit_intercept):
    assert_alike(name, X, y, fit_intercept=fit_intercept, **tolerated(name))


@pytest.mark.parametrize("narrow_y", [True, False])
@pytest.mark.parametrize("name", PLAIN)
def test_float32_gives_scikit_learns_types(name, narrow_y):
    target = y.astype(np.float32) if narrow_y else y
    assert_alike(name, X.astype(np.float32), target, rtol=5e-3, skip=STEPS)


@pytest.mark.parametrize("kind", ["pandas", "narrow pandas", "polars", "list"])
@pytest.mark.parametrize("name", [*PLAIN, "RidgeClassifier", "RidgeClassifierCV"])
def test_containers_give_scikit_learns_types(name, kind):
    rows, labels, *_ = classification()
    if kind == "list":
        given = rows.tolist()
    else:
        names = [f"column {i}" for i in range(rows.shape[1])]
        frames = pytest.importorskip(kind.split()[-1])
        dtype = np.float32 if "narrow" in kind else np.float64
        given = frames.DataFrame(dict(zip(names, rows.T.astype(dtype), strict=True)))
    target = labels if "Classifier" in name else y
    ours = getattr(linear_model, name)().fit(given, target)
    theirs = getattr(sklearn.linear_model, name)().fit(given, target)
    found, expected = fitted(ours), fitted(theirs)
    assert found.keys() == expected.keys()
    rtol = 5e-3 if "narrow" in kind else 1e-7
    for attribute in expected.keys() - {"_label_binarizer", *STEPS}:
        assert_same(found[attribute], expected[attribute], attribute, rtol)
    assert_same(ours.predict(given), theirs.predict(given), "predict", rtol)


@pytest.mark.parametrize("name", PLAIN)
def test_integers_give_scikit_learns_types(name):
    if name == "RidgeCV" and (1, 8) <= VERSION.release < (1, 9):
        pytest.skip("scikit-learn makes integers of the coefficients")
    assert_alike(name, np.rint(X).astype(int), y, **tolerated(name))


@pytest.mark.parametrize("weight", [WEIGHT, 2.0], ids=["array", "scalar"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_count_as_in_scikit_learn(name, fit_intercept, weight):
    if name == "BayesianRidge" and VERSION.release < (1, 7):
        pytest.skip("refused: scikit-learn counts rows where it should count weights")
    options = {"fit_intercept": fit_intercept, **tolerated(name)}
    assert_alike(name, X, y, weight=weight, **options)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("target", [MANY, MANY[:, :1]], ids=["several", "column"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_several_targets_are_fitted_as_in_scikit_learn(name, target, fit_intercept):
    assert_alike(name, X, target, fit_intercept=fit_intercept)


@pytest.mark.parametrize(
    ("target", "parameters"),
    [
        (y, {"gcv_mode": "svd"}),
        (y, {"gcv_mode": "eigen"}),
        (y, {"gcv_mode": "auto", "alphas": [0.01, 0.1, 1.0, 10.0]}),
        (y, {"alphas": np.array([1, 2])}),
        (y, {"alphas": [2]}),
        (y, {"store_cv_results": True}),
        (y, {"alpha_per_target": True}),
        (MANY, {"store_cv_results": True}),
        (MANY, {"alpha_per_target": True, "alphas": [0.1, 1, 10, 100]}),
        (MANY[:, :1], {"alpha_per_target": True, "store_cv_results": True}),
        (y, {"scoring": "r2"}),
        (y, {"scoring": "neg_mean_absolute_error", "store_cv_results": True}),
        (MANY, {"scoring": "neg_max_error", "alpha_per_target": True}),
        (MANY, {"scoring": "neg_mean_squared_error", "store_cv_results": True}),
    ],
)
def test_ridge_cv_leaves_out_one_row_at_a_time(target, parameters):
    assert_alike("RidgeCV", X, target, **parameters)


WIDE = np.random.RandomState(5).randn(30, 45) + 3


@pytest.mark.parametrize("weight", [None, WEIGHT[:30]], ids=["plain", "weighted"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("name", "target", "parameters"),
    [
        ("RidgeCV", y[:30], {"store_cv_results": True}),
        ("RidgeCV", MANY[:30], {"alpha_per_target": True, "alphas": [1e-3, 1.0, 100.0]}),
        ("RidgeCV", y[:30], {"scoring": "neg_mean_absolute_error", "store_cv_results": True}),
        ("RidgeClassifierCV", np.arange(30) % 3, {"store_cv_results": True}),
        ("RidgeClassifierCV", np.arange(30) % 2, {"class_weight": "balanced"}),
        ("RidgeClassifier", np.arange(30) % 3, {"class_weight": {0: 2.0}}),
        ("RidgeClassifier", np.arange(30) % 2, {"alpha": 0.1, "solver": "svd"}),
    ],
)
def test_a_ridge_of_few_rows_is_scikit_learns(name, target, parameters, fit_intercept, weight):
    options = {"fit_intercept": fit_intercept, "new": WIDE, **parameters}
    assert_alike(name, WIDE, target, 1e-8, weight=weight, **options)
    assert_alike(name, WIDE[:, :30], target, 1e-7, weight=weight, **options | {"new": WIDE[:, :30]})


@pytest.mark.parametrize(
    ("name", "target", "parameters"),
    [
        ("Lars", y, {"fit_path": False}),
        ("Lars", MANY, {"fit_path": False}),
        ("Lars", MANY[:, :1], {"fit_path": False}),
        ("Lars", y, {"n_nonzero_coefs": 2}),
        ("LassoLars", y, {"alpha": 0.1}),
        ("LassoLars", y, {"alpha": 0.1, "fit_path": False}),
        ("LassoLars", y, {"alpha": 0.01, "positive": True}),
        ("LassoLarsIC", y, {"criterion": "bic"}),
        ("LassoLarsIC", y, {"noise_variance": 2.0, "positive": True}),
        ("OrthogonalMatchingPursuit", y, {"n_nonzero_coefs": 3}),
        ("OrthogonalMatchingPursuit", y, {"tol": 100.0}),
        ("OrthogonalMatchingPursuit", MANY, {"tol": 300.0}),
        ("OrthogonalMatchingPursuit", y, {"precompute": True}),
        ("OrthogonalMatchingPursuitCV", y, {"max_iter": 3, "cv": 3}),
        ("OrthogonalMatchingPursuitCV", y, {"cv": ShuffleSplit(3, random_state=0)}),
    ],
)
def test_paths_are_scikit_learns(name, target, parameters):
    assert_alike(name, X, target, **parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"compute_score": True},
        {"compute_score": True, "alpha_init": 1.0, "lambda_init": 1e-3, "max_iter": 3},
        {"alpha_1": 1.0, "alpha_2": 2.0, "lambda_1": 3.0, "lambda_2": 4.0},
    ],
)
@pytest.mark.parametrize("name", ["BayesianRidge", "ARDRegression"])
def test_bayesian_models_tell_the_deviation_too(name, parameters):
    if name == "ARDRegression":
        parameters = {n: v for n, v in parameters.items() if not n.endswith("_init")}
        parameters["threshold_lambda"] = 50.0
    ours, theirs = assert_alike(name, X, y, **parameters)
    assert_same(ours.predict(NEW, return_std=True), theirs.predict(NEW, return_std=True))
    assert_same(accelsk.from_sklearn(theirs).predict(NEW, True), theirs.predict(NEW, True))
    narrow = X.astype(np.float32)
    ours, theirs = assert_alike(name, narrow, y, 5e-3, STEPS, **parameters)
    assert_same(ours.predict(narrow, return_std=True), theirs.predict(narrow, True), "std", 5e-3)


def test_no_feature_is_relevant_where_the_threshold_is_nothing():
    assert_alike("ARDRegression", X, y, threshold_lambda=0.0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("RidgeCV", {"cv": 3}),
        ("RidgeCV", {"cv": KFold(4, shuffle=True, random_state=0), "alphas": [0.0, 1.0, 100]}),
        ("RidgeCV", {"cv": 3, "scoring": "neg_mean_absolute_error", "fit_intercept": False}),
        ("RidgeClassifierCV", {"cv": 3}),
        ("RidgeClassifierCV", {"cv": 3, "class_weight": "balanced", "scoring": "f1_macro"}),
    ],
)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_a_ridge_with_cv_is_a_search(name, parameters, weight):
    rows, labels, *_ = classification()
    target = labels if "Classifier" in name else y
    assert_alike(name, rows, target, weight=weight, **parameters)
    assert_alike(name, rows.astype(np.float32), target, 5e-3, **parameters)


@pytest.mark.parametrize("data", [classification, binary])
def test_a_scorer_chooses_the_penalty_of_a_classifier(data):
    rows, labels, *_ = data()
    parameters = {"scoring": "accuracy", "store_cv_results": True, "alphas": [0.1, 10, 1000]}
    assert_alike("RidgeClassifierCV", rows, labels, **parameters)


FEW = {"alphas": 5} if "n_alphas" not in linear_model.LassoCV().get_params() else {}
SPLITS = [(np.arange(100), np.arange(100, 150)), (np.arange(50, 150), np.arange(20, 50))]


@pytest.mark.parametrize(
    "parameters",
    [
        FEW,
        {"alphas": [0.1, 1.0, 0.01]},
        {"alphas": [2, 1]},
        {"cv": 3},
        {"cv": KFold(4, shuffle=True, random_state=0)},
        {"cv": ShuffleSplit(3, random_state=0)},
        {"cv": SPLITS},
        {"cv": SPLITS[:1]},
        {"positive": True},
        {"selection": "random", "random_state": 0},
        {"n_jobs": 2},
        {"precompute": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("ratios", [None, 0.5, [0.1, 0.5, 0.9]])
def test_the_penalty_of_a_lasso_is_chosen_as_in_scikit_learn(ratios, parameters):
    name = "LassoCV" if ratios is None else "ElasticNetCV"
    given = parameters if ratios is None else {"l1_ratio": ratios, **parameters}
    weight = WEIGHT if ratios == 0.5 else None
    assert_alike(name, X, y, 1e-7, STEPS, weight, **given)


def test_a_descent_that_does_not_converge_warns_once_for_each_penalty():
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        linear_model.LassoCV(max_iter=1, tol=1e-12, alphas=[0.1, 0.01]).fit(X, y)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"fit_intercept": False},
        {"class_weight": "balanced"},
        {"class_weight": {0: 2.0, 1: 0.5}},
    ],
)
@pytest.mark.parametrize("data", [classification, binary])
@pytest.mark.parametrize("name", ["RidgeClassifier", "RidgeClassifierCV"])
def test_classes_are_told_apart_as_in_scikit_learn(name, data, parameters, weight):
    rows, labels, *_ = data()
    assert_alike(name, rows, labels, weight=weight, **parameters)


@pytest.mark.parametrize("name", ["RidgeClassifier", "RidgeClassifierCV"])
def test_labels_and_dtypes_of_classifiers_are_scikit_learns(name):
    rows, labels, *_ = classification()
    words = np.array(["a", "b", "c"])[labels]
    ours, theirs = assert_alike(name, rows, words)
    assert vars(ours._label_binarizer).keys() == vars(theirs._label_binarizer).keys()
    assert ours._label_binarizer.y_type_ == theirs._label_binarizer.y_type_
    assert_alike(name, rows.astype(np.float32), labels, rtol=5e-3)
    if name == "RidgeClassifier" or not (1, 8) <= VERSION.release < (1, 9):
        assert_alike(name, np.rint(rows).astype(int), labels)
    assert_alike("RidgeClassifierCV", rows, labels, store_cv_results=True)
    assert_alike("RidgeClassifier", rows, labels, solver="svd", alpha=3)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("BayesianRidge", {"compute_score": True}),
        ("ARDRegression", {}),
        ("LassoLarsIC", {}),
        ("LassoCV", {"alphas": [1.0, 1e-1, 1e-3]}),
        ("OrthogonalMatchingPursuitCV", {}),
    ],
)
def test_errors_have_their_digits_where_next_to_nothing_is_left(
    name, parameters, noise, fit_intercept
):
    target = X @ np.arange(1.0, 7.0) + noise * RNG.randn(len(X))
    options = {"fit_intercept": fit_intercept, **parameters}
    assert_alike(name, X, target, 1e-6, STEPS, **options)
