"""Scalers, polynomial features and encoders against scikit-learn, on NumPy in CuPy's place."""

from __future__ import annotations

import copy
import inspect
import math
import warnings

import device_double
import numpy as np
import pandas as pd
import pytest
import sklearn.preprocessing
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

import accelsk
from accelsk import preprocessing
from accelsk.algorithms import categories, columns, polynomial, target_encoding
from accelsk.exceptions import FallbackError

RNG = np.random.RandomState(0)
ROWS = RNG.randn(301, 5) * [1, 10, 1e-3, 1, 1e4] + [0, 1e5, 0, 5, 0]
GAPS = np.where(RNG.rand(*ROWS.shape) < 0.1, np.nan, ROWS)
WEIGHTS = RNG.rand(len(ROWS))
SCALERS = {
    "standard": ("StandardScaler", {}),
    "no mean": ("StandardScaler", {"with_mean": False}),
    "no deviation": ("StandardScaler", {"with_std": False}),
    "neither": ("StandardScaler", {"with_mean": False, "with_std": False}),
    "range": ("MinMaxScaler", {}),
    "clipped": ("MinMaxScaler", {"feature_range": (-2, 5), "clip": True}),
    "absolute": ("MaxAbsScaler", {}),
}


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def pair(name, **options):
    return getattr(preprocessing, name)(**options), getattr(sklearn.preprocessing, name)(**options)


def same(found, expected, rtol=1e-12, atol=1e-12, name="result"):
    """The two agree by type, dtype, shape and value, through lists and sparse matrices."""
    assert type(found) is type(expected), name
    if isinstance(expected, list):
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            same(one, other, rtol, atol, name)
    elif sparse.issparse(expected):
        assert found.shape == expected.shape
        for part in ("data", "indices", "indptr"):
            same(getattr(found, part), getattr(expected, part), name=part)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype, name
        assert found.shape == expected.shape, name
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol, atol, err_msg=name)
        else:
            assert list(map(str, np.ravel(found))) == list(map(str, np.ravel(expected))), name
    else:
        assert found == expected, name


def alike(ours, theirs, rtol=1e-12, atol=1e-12):
    """All fitted attributes agree, private ones too."""
    ours._accelsk_fetch()
    parameters = ours.get_params()
    for name, expected in vars(theirs).items():
        if name not in parameters and not name.startswith(("_skl", "_sklearn")):
            same(vars(ours)[name], expected, rtol, atol, name)


# Columns


def column_moments(X, weight=None, block=70, shift=None):
    accumulator = columns.Accumulator(np, shift)
    for start in range(0, len(X), block):
        rows = slice(start, start + block)
        accumulator.add(X[rows], None if weight is None else weight[rows])
    return accumulator.result()


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["alone", "weighted"])
@pytest.mark.parametrize("X", [ROWS, GAPS, ROWS.astype(np.float32), np.asfortranarray(GAPS)])
def test_moments_leave_missing_values_out(X, weight, monkeypatch):
    monkeypatch.setattr(columns, "_CHUNK", 64)
    there = ~np.isnan(X)
    w = there * (np.ones(len(X)) if weight is None else weight)[:, None]
    values = np.where(there, X, 0).astype(np.float64)
    count, mean, squares, rows, _ = column_moments(X, weight)
    np.testing.assert_array_equal(rows, there.sum(axis=0))
    np.testing.assert_allclose(count, w.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(mean, np.average(values, axis=0, weights=w), rtol=1e-12)
    spread = (w * (values - mean) ** 2).sum(axis=0)
    np.testing.assert_allclose(squares, spread, rtol=1e-12)


def test_moments_lose_no_digits_to_an_offset():
    X = RNG.randint(0, 100, (1000, 2)) / 64.0
    _, mean, squares, _, loss = column_moments(X + 2.0**30)
    _, expected_mean, expected, _, _ = column_moments(X)
    assert loss.max() < 2
    np.testing.assert_allclose(mean - 2.0**30, expected_mean, rtol=1e-6)
    np.testing.assert_allclose(squares, expected, rtol=1e-13)


def test_moments_of_parts_add_up():
    whole = column_moments(ROWS, WEIGHTS)
    one, other = (column_moments(ROWS[s], WEIGHTS[s]) for s in (slice(99), slice(99, None)))
    for found, expected in zip(columns.merged(one, other)[:4], whole[:4], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_an_estimate_of_a_column_without_values_yet_is_replaced():
    X = np.concatenate([np.full((500, 2), np.nan), 1e6 + RNG.normal(size=(9500, 2))])
    first = column_moments(X, block=500)
    assert first.loss.max() > 30
    again = column_moments(X, block=500, shift=first.mean)
    assert again.loss.max() < 1.01
    np.testing.assert_allclose(again.squares / again.count, np.nanvar(X, axis=0), rtol=1e-9)
    scaler = preprocessing.StandardScaler().fit(X)
    np.testing.assert_allclose(scaler.var_, np.nanvar(X, axis=0), rtol=1e-9)


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 4))), st.integers(1, 50)
)
def test_extremes_leave_missing_values_out(X, block):
    extremes = columns.Extremes(np)
    for start in range(0, len(X), block):
        extremes.add(X[start : start + block])
    low, high = extremes.result()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(low, np.nanmin(X, axis=0))
        np.testing.assert_array_equal(high, np.nanmax(X, axis=0))


# Scalers


@pytest.mark.parametrize("key", SCALERS)
@pytest.mark.parametrize("X", [ROWS, GAPS, (ROWS * 10).astype(np.int32), ROWS[:20].tolist()])
def test_a_scaler_is_scikit_learns(key, X):
    name, options = SCALERS[key]
    ours, theirs = pair(name, **options)
    alike(ours.fit(X), theirs.fit(X))
    scaled = theirs.transform(X)
    same(ours.transform(X), scaled, 1e-9, 1e-9)
    same(ours.fit_transform(X), scaled, 1e-9, 1e-9)
    same(ours.inverse_transform(scaled), theirs.inverse_transform(scaled))


@pytest.mark.parametrize("key", SCALERS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_scaler_streams_what_is_larger_than_the_memory_limit(key, order):
    name, options = SCALERS[key]
    ours, theirs = pair(name, **options)
    X = np.array(GAPS, order=order)
    with accelsk.config_context(device_memory_limit=X.nbytes // 2):
        alike(ours.fit(X), theirs.fit(X))
        same(ours.fit_transform(X), theirs.transform(X), 1e-9, 1e-9)


@pytest.mark.parametrize("key", SCALERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_scaler_keeps_float32(key, weighted):
    name, options = SCALERS[key]
    if weighted and name != "StandardScaler":
        pytest.skip("takes no weights")
    given = {"sample_weight": WEIGHTS} if weighted else {}
    X = GAPS.astype(np.float32)
    ours, theirs = pair(name, **options)
    tolerance = 1e-9 if name == "StandardScaler" else 1e-6
    alike(ours.fit(X, **given), theirs.fit(X, **given), tolerance, tolerance)
    expected = theirs.transform(X)
    if name == "StandardScaler":  # newer versions round the mean before they subtract it
        exact = sklearn.preprocessing.StandardScaler(**options).fit(X.astype(np.float64), **given)
        expected = exact.transform(X.astype(np.float64)).astype(np.float32)
    same(ours.transform(X), expected, 1e-5, 1e-4)


@pytest.mark.parametrize("key", ["standard", "no mean", "no deviation"])
@pytest.mark.parametrize("weight", [WEIGHTS, 2.0])
@pytest.mark.parametrize("X", [ROWS, GAPS])
def test_a_weighted_scaler_is_scikit_learns(key, weight, X):
    ours, theirs = pair("StandardScaler", **SCALERS[key][1])
    alike(ours.fit(X, sample_weight=weight), theirs.fit(X, sample_weight=weight))
    same(ours.fit_transform(X, sample_weight=weight), theirs.transform(X), 1e-9, 1e-9)


@pytest.mark.parametrize("key", SCALERS)
@pytest.mark.parametrize("parts", [(ROWS, ROWS), (GAPS, ROWS), (ROWS, GAPS)])
def test_partial_fit_goes_on(key, parts):
    name, options = SCALERS[key]
    ours, theirs = pair(name, **options)
    for X in (parts[0][:99], parts[1][99:200] * 2 + 1, parts[0][200:]):
        alike(ours.partial_fit(X), theirs.partial_fit(X))
    continued = accelsk.from_sklearn(copy.deepcopy(theirs)).partial_fit(ROWS)
    alike(continued, theirs.partial_fit(ROWS))


def test_partial_fit_keeps_the_feature_names():
    frame = pd.DataFrame(ROWS, columns=list("abcde"))
    scaler = preprocessing.MinMaxScaler().fit(frame)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        scaler.partial_fit(ROWS)
    assert list(scaler.feature_names_in_) == list("abcde")


def test_constant_columns_are_not_scaled():
    X = np.full((5000, 3), [0.1, 1e9 + 0.3, -7.7e-5])
    ours, theirs = pair("StandardScaler")
    same(ours.fit(X).scale_, theirs.fit(X).scale_)


@pytest.mark.parametrize("name", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_without_a_copy_the_array_itself_is_scaled(name, order):
    ours, theirs = pair(name, copy=False)
    X, reference = np.array(ROWS, order=order), np.array(ROWS, order=order)
    assert ours.fit_transform(X) is X
    same(X, theirs.fit_transform(reference), 1e-9, 1e-9)
    assert ours.inverse_transform(X) is X
    np.testing.assert_allclose(X, ROWS, 1e-9, 1e-9)
    on_device = device_double._asarray(ROWS)
    assert ours.transform(on_device) is on_device
    same(on_device.get(), theirs.transform(np.array(ROWS)), 1e-9, 1e-9)


@pytest.mark.parametrize("name", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler"])
def test_an_array_on_the_device_stays_there_and_as_it_is(name):
    import cupy

    X = cupy.asarray(ROWS)
    ours, theirs = pair(name)
    for result in (ours.fit(X).transform(X), ours.fit_transform(X), ours.inverse_transform(X)):
        assert isinstance(result, cupy.ndarray)
        assert result is not X
    np.testing.assert_array_equal(X.get(), ROWS)
    same(ours.transform(X).get(), theirs.fit(ROWS).transform(ROWS), 1e-9, 1e-9)


@pytest.mark.parametrize("name", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler"])
def test_infinity_is_scikit_learns_error(name):
    scaler = getattr(preprocessing, name)()
    bad = np.where(ROWS > 8, np.inf, ROWS)
    with pytest.raises(ValueError, match="infinity"):
        scaler.fit(bad)
    with pytest.raises(ValueError, match="infinity"):
        scaler.fit(ROWS).transform(bad)


def test_what_a_scaler_leaves_to_scikit_learn():
    for X, reason in (
        (ROWS.astype(np.float16), "float16"),
        (sparse.csr_matrix(ROWS), "sparse"),
        (np.column_stack([ROWS, np.full(len(ROWS), np.nan)]), "no value"),
    ):
        with pytest.raises(FallbackError, match=reason):
            preprocessing.StandardScaler(with_mean=False).fit(X)
    with pytest.raises(FallbackError, match="copy=False"):
        preprocessing.MaxAbsScaler(copy=False).fit_transform(pd.DataFrame(ROWS))


# Polynomial features


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"degree": 3},
        {"degree": (2, 3)},
        {"degree": (0, 2), "include_bias": False},
        {"degree": 3, "interaction_only": True},
        {"degree": 7, "interaction_only": True},
        {"degree": (3, 4), "interaction_only": True, "include_bias": False},
        {"degree": 1},
        {"degree": 0},
        {"order": "F"},
    ],
    ids=str,
)
def test_polynomial_features_are_scikit_learns_to_the_last_bit(options, dtype, monkeypatch):
    monkeypatch.setattr(polynomial, "_CHUNK", 999)
    X = (ROWS * 3).astype(dtype)
    ours, theirs = pair("PolynomialFeatures", **options)
    expected = theirs.fit_transform(X)
    for found in (ours.fit_transform(X), ours.fit(X).transform(X)):
        same(found, expected, 0, 0)
        assert found.flags.f_contiguous == expected.flags.f_contiguous
    alike(ours, theirs)
    same(ours.powers_, theirs.powers_)


def test_polynomial_features_reject_what_scikit_learn_rejects():
    for options in ({"degree": (3, 2)}, {"degree": 0, "include_bias": False}):
        with pytest.raises(ValueError, match="degree"):
            preprocessing.PolynomialFeatures(**options).fit(ROWS)


# Categories


@given(
    st.sampled_from([np.int64, np.uint8, np.float32, np.float64]).flatmap(
        lambda dtype: arrays.arrays(dtype, st.integers(1, 60), elements=st.integers(0, 9))
    ),
    st.booleans(),
)
def test_distinct_values_and_codes_are_those_of_unique(values, missing):
    if missing and values.dtype.kind == "f":
        values = np.where(values == 3, np.nan, values)
    found, counts = categories.distinct(values, np)
    expected, inverse, expected_counts = np.unique(values, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(counts, expected_counts)
    np.testing.assert_array_equal(categories.codes_of(values, found, np), inverse)
    known = found[1:]
    if len(known):
        codes = categories.codes_of(values, known, np)
        np.testing.assert_array_equal(codes, np.where(inverse == 0, len(known), inverse - 1))


@given(
    arrays.arrays(
        np.float64,
        st.integers(1, 60),
        elements=st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda v: abs(v) > 1e-12),
    ),
    st.integers(0, 99),
)
def test_group_sums_are_exact_whatever_the_order(values, seed):
    rng = np.random.RandomState(seed)
    groups = rng.randint(0, 3, len(values))
    found = categories.group_sums(values, groups, 3, np)
    exact = [math.fsum(values[groups == group]) for group in range(3)]
    np.testing.assert_allclose(found, exact, rtol=1e-15, atol=1e-18 * np.abs(values).max())
    order = rng.permutation(len(values))
    np.testing.assert_array_equal(categories.group_sums(values[order], groups[order], 3, np), found)


N = 400
NUMBERS = np.column_stack(
    [RNG.randint(0, 4, N), RNG.randint(0, 30, N) ** 2 // 40, RNG.randint(0, 2, N), np.full(N, 3)]
)
WORDS = np.array(["ann", "bob", "cy", "dee"], dtype=object)[NUMBERS[:, [0, 2]]]
HOLES = WORDS.copy()
HOLES[::9, 0], HOLES[::11, 1], HOLES[5, 1] = None, float("nan"), None
SOME_MISSING = NUMBERS.astype(float)
SOME_MISSING[::7, 1] = np.nan
TABLES = {
    "int": NUMBERS,
    "float32": (NUMBERS / 4).astype(np.float32),
    "missing": SOME_MISSING,
    "bool": NUMBERS[:, [2, 2]].astype(bool),
    "words": WORDS,
    "unicode": WORDS.astype(str),
    "words with holes": HOLES,
    "list": WORDS.tolist(),
    "mixed": pd.DataFrame(
        {
            "a": NUMBERS[:, 0],
            "b": NUMBERS[:, 1] / 2,
            "c": NUMBERS[:, 2].astype(bool),
            "d": WORDS[:, 0],
            "e": pd.Categorical(WORDS[:, 1]),
        }
    ),
}


@pytest.mark.parametrize("key", TABLES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop": "first"},
        {"drop": "if_binary", "sparse_output": False},
        {"min_frequency": 40},
        {"min_frequency": 0.1, "drop": "first"},
        {"max_categories": 3, "handle_unknown": "ignore"},
        {"max_categories": 2, "drop": "if_binary"},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 50, "sparse_output": False},
        {"dtype": np.int32},
    ],
    ids=str,
)
def test_one_hot_encoding_is_scikit_learns(key, options):
    X = TABLES[key]
    ours, theirs = pair("OneHotEncoder", **options)
    same(ours.fit_transform(X), theirs.fit_transform(X))
    alike(ours, theirs)
    same(ours.transform(X), theirs.transform(X))
    same(ours.get_feature_names_out(), theirs.get_feature_names_out())
    loaded = accelsk.from_sklearn(theirs)
    same(loaded.transform(X), theirs.transform(X))


@pytest.mark.parametrize("key", ["int", "words", "mixed", "missing"])
@pytest.mark.parametrize(
    "options",
    [
        {"handle_unknown": "ignore"},
        {"handle_unknown": "ignore", "max_categories": 3},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 50},
    ],
    ids=str,
)
def test_unknown_categories_are_encoded_as_scikit_learn_does(key, options):
    X = TABLES[key]
    new = pd.DataFrame(X).copy()
    new.iloc[4, 0], new.iloc[7, 0] = ("eve", "zoe") if key == "words" else (77, -5)
    new = new if key == "mixed" else new.to_numpy()
    ours, theirs = pair("OneHotEncoder", **options)
    same(ours.fit(X).transform(new), theirs.fit(X).transform(new))


@pytest.mark.parametrize("key", TABLES)
@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop": "first"},
        {"drop": "if_binary"},
        {"min_frequency": 40},
        {"min_frequency": 0.1, "drop": "first"},
        {"handle_unknown": "ignore"},
        {"handle_unknown": "ignore", "drop": "first", "max_categories": 3},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 50},
    ],
    ids=str,
)
def test_an_encoding_comes_back_as_in_scikit_learn(key, options, as_array):
    X = TABLES[key]
    ours, theirs = pair("OneHotEncoder", sparse_output=not as_array, **options)
    encoded = theirs.fit_transform(X)
    ours.fit(X)
    same(ours.inverse_transform(encoded), theirs.inverse_transform(encoded))
    if options.get("handle_unknown") and not options.get("min_frequency"):
        empty = encoded[:3] * 0 if as_array else sparse.csr_matrix(encoded[:3].shape)
        same(ours.inverse_transform(empty), theirs.inverse_transform(empty))


def test_a_row_without_a_category_is_scikit_learns_error():
    encoder = preprocessing.OneHotEncoder().fit(NUMBERS)
    with pytest.raises(ValueError, match="can not be inverted"):
        encoder.inverse_transform(np.zeros((2, sum(encoder._n_features_outs))))
    with pytest.raises(ValueError, match="Shape of the passed X"):
        encoder.inverse_transform(np.ones((2, 3)))


def test_an_unknown_category_is_scikit_learns_error_or_warning():
    with pytest.raises(ValueError, match="Found unknown categories"):
        preprocessing.OneHotEncoder().fit(NUMBERS).transform(NUMBERS + 100)
    encoder = preprocessing.OneHotEncoder(drop="first", handle_unknown="ignore").fit(NUMBERS)
    with pytest.raises(FallbackError, match="warns"):
        encoder.transform(NUMBERS + 100)


@pytest.mark.parametrize(
    ("key", "listed"),
    [
        ("int", [[0, 1, 2, 3, 9], np.unique(NUMBERS[:, 1]).tolist(), [0, 1], [3, 4]]),
        ("words", [["dee", "bob", "cy", "ann", "x"], ["ann", "cy", "bob"]]),
    ],
)
def test_given_categories_are_kept(key, listed):
    X = TABLES[key]
    for options in ({}, {"drop": "first"}, {"min_frequency": 40}):
        ours, theirs = pair("OneHotEncoder", categories=listed, **options)
        same(ours.fit_transform(X), theirs.fit_transform(X))
        alike(ours, theirs)
    few = [values[:2] for values in listed]
    with pytest.raises(ValueError, match="Found unknown categories"):
        preprocessing.OneHotEncoder(categories=few).fit(X)
    target = RNG.rand(N)
    ours, theirs = pair("TargetEncoder", categories=few)
    np.random.seed(0)
    found = ours.fit_transform(X, target)
    np.random.seed(0)
    same(found, theirs.fit_transform(X, target))
    alike(ours, theirs)


def test_categories_to_drop_can_be_given():
    ours, theirs = pair("OneHotEncoder", drop=[1, 0, 1, 3])
    same(ours.fit_transform(NUMBERS), theirs.fit_transform(NUMBERS))
    alike(ours, theirs)
    with pytest.raises(ValueError, match="supposed to be"):
        preprocessing.OneHotEncoder(drop=[99, 0, 1, 3]).fit(NUMBERS)


def test_encoders_give_frames():
    X = TABLES["mixed"]
    ours, theirs = pair("OneHotEncoder", sparse_output=False)
    for encoder in (ours, theirs):
        encoder.set_output(transform="pandas")
    same(ours.fit_transform(X), theirs.fit_transform(X))
    with pytest.raises(ValueError, match="does not support sparse data"):
        preprocessing.OneHotEncoder().set_output(transform="pandas").fit_transform(X)


def test_objects_of_other_types_are_left_to_scikit_learn():
    with pytest.raises(FallbackError, match="not strings"):
        preprocessing.OneHotEncoder().fit(np.array([[1], ["a"]], dtype=object)[:1].repeat(2, 0))


# Target encoding


TARGETS = {
    "continuous": RNG.randn(N) * 10 + NUMBERS[:, 0] + 100,
    "binary": (RNG.rand(N) < 0.3 + 0.1 * NUMBERS[:, 0]).astype(int),
    "multiclass": (NUMBERS[:, 0] + RNG.randint(0, 2, N)) % 3,
}
TARGETS["words"] = np.array(["no", "yes"], dtype=object)[TARGETS["binary"]]
TARGETS["many words"] = np.array(["p", "q", "r"], dtype=object)[TARGETS["multiclass"]]
TARGETS["series"] = pd.Series(TARGETS["continuous"])


def seeded(**options):
    """Return options with a seed, in the way that does not warn."""
    default = inspect.signature(sklearn.preprocessing.TargetEncoder).parameters["random_state"]
    if default.default == "deprecated":
        return options
    return {**options, "random_state": None}


def fitted_alike(ours, theirs, X, y):
    np.random.seed(3)
    found = ours.fit_transform(X, y)
    np.random.seed(3)
    same(found, theirs.fit_transform(X, y))
    alike(ours, theirs)


@pytest.mark.parametrize("key", TABLES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("smooth", ["auto", 0.0, 12.5])
def test_target_encoding_is_scikit_learns(key, target, smooth):
    X, y = TABLES[key], TARGETS[target]
    ours, theirs = pair("TargetEncoder", **seeded(smooth=smooth))
    fitted_alike(ours, theirs, X, y)
    same(ours.transform(X), theirs.transform(X))
    same(accelsk.from_sklearn(theirs).transform(X), theirs.transform(X))
    alike(ours.fit(X, y), theirs.fit(X, y))
    if key == "int":
        same(ours.transform(X + 50), theirs.transform(X + 50))


@pytest.mark.parametrize("cv", [2, 10, sklearn.model_selection.KFold(3)])
def test_target_encoding_takes_scikit_learns_folds(cv):
    ours, theirs = pair("TargetEncoder", cv=cv)
    try:
        theirs.fit_transform(NUMBERS, TARGETS["binary"])
    except ValueError:
        pytest.skip("a splitter is no cv in this scikit-learn")
    fitted_alike(ours, theirs, NUMBERS, TARGETS["binary"])


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("options", [{"random_state": 1}, {"shuffle": False}])
def test_target_encoding_draws_as_scikit_learn(options):
    ours, theirs = pair("TargetEncoder", **options)
    same(
        ours.fit_transform(NUMBERS, TARGETS["binary"]),
        theirs.fit_transform(NUMBERS, TARGETS["binary"]),
    )


def test_deprecated_hyperparameters_warn_as_in_scikit_learn():
    given = []
    for encoder in pair("TargetEncoder", random_state=0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            encoder.fit_transform(NUMBERS, TARGETS["continuous"])
        given.append([(w.category, str(w.message)) for w in caught])
    assert given[0] == given[1]


def test_an_encoding_without_rows_is_the_mean():
    empty = target_encoding.Groups(*np.zeros((3, 1, 1, 2)))
    everything = target_encoding.Groups(*np.array([5.0, 0.4, 1.2]).reshape(3, 1, 1, 1))
    for smooth in (None, 0.0, 3.0):
        found = target_encoding.encodings(empty, everything, smooth, np)
        np.testing.assert_allclose(found, [[[0.4, 0.4]]], rtol=1e-15)


# Labels


LABELS = {
    "three": [0, 1, 2, 1, 1, 0] * 9,
    "two": [0, 1] * 9,
    "one": [1] * 8,
    "thirty": list(range(30)) * 3,
}


@pytest.mark.parametrize("key", LABELS)
@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.int64, np.int8, bool, np.uint16, list]
)
def test_labels_are_coded_as_in_scikit_learn(key, dtype):
    y = LABELS[key] if dtype is list else np.array(LABELS[key], dtype=dtype)
    ours, theirs = pair("LabelEncoder")
    codes = theirs.fit_transform(y)
    same(ours.fit_transform(y), codes)
    alike(ours, theirs)
    same(ours.fit(y).transform(y), codes)
    same(ours.inverse_transform(codes), theirs.inverse_transform(codes))
    signed = [{"neg_label": -1, "pos_label": 3}, {"neg_label": -5, "pos_label": 0}]
    for options in [{}, *signed] if dtype is not np.uint16 else [{}]:
        ours, theirs = pair("LabelBinarizer", **options)
        same(ours.fit_transform(y), theirs.fit_transform(y))
        alike(ours, theirs)
        indicators = theirs.transform(y)
        same(ours.fit(y).transform(y), indicators)
        same(ours.inverse_transform(indicators), theirs.inverse_transform(indicators))
        scores = RNG.randn(*indicators.shape)
        same(ours.inverse_transform(scores), theirs.inverse_transform(scores))
        same(ours.inverse_transform(scores, 0.3), theirs.inverse_transform(scores, threshold=0.3))


def test_a_missing_label_is_a_class_of_its_own():
    y = np.array([2.5, np.nan, -1, 2.5])
    ours, theirs = pair("LabelEncoder")
    same(ours.fit_transform(y), theirs.fit_transform(y))
    alike(ours, theirs)


def test_unseen_labels():
    y = np.array([3, 1, 5, 5])
    ours, theirs = pair("LabelBinarizer")
    same(ours.fit(y).transform([1, 2, 5]), theirs.fit(y).transform([1, 2, 5]))
    encoder = preprocessing.LabelEncoder().fit(y)
    with pytest.raises(ValueError, match="previously unseen"):
        encoder.transform([1, 2])
    with pytest.raises(ValueError, match="previously unseen"):
        encoder.inverse_transform([0, 7])


def test_labels_that_are_no_numbers_are_left_to_scikit_learn():
    for name in ("LabelEncoder", "LabelBinarizer"):
        with pytest.raises(FallbackError, match="coded on the host"):
            getattr(preprocessing, name)().fit(["a", "b", "a"])


def test_labels_on_the_device_stay_there():
    import cupy

    y = cupy.asarray(np.array([3, 1, 5, 5]))
    for name in ("LabelEncoder", "LabelBinarizer"):
        assert isinstance(getattr(preprocessing, name)().fit_transform(y), cupy.ndarray)
