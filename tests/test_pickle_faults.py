"""Pickles that are cut short, tampered with or of other versions fare as scikit-learn's own do.

Every accelerated class is fitted by the test engine, and compared with the plain class.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import pickle
import subprocess
import sys
import textwrap
import types
import warnings
import zlib
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from class_cases import all_classes, case_of
from comparison import assert_same, outcome_of
from engine import ILLEGAL_ADDRESS, AcceleratedLine, FakeCudaError, engine_of, generic_of
from sklearn.exceptions import InconsistentVersionWarning
from test_pickling import _globals

import accelsk
from accelsk.estimator import SLOT
from accelsk.linear_model import Ridge

try:
    import cloudpickle
except ImportError:  # an older joblib brings its own
    from joblib.externals import cloudpickle

ROOT = Path(__file__).parent.parent

KEYS = [key for key in all_classes() if not key.startswith(("umap.", "hdbscan."))]

#: What a pickle names to find accelsk's class or, where that is not there, scikit-learn's.
RECONSTRUCTORS = {
    "builtins.filter",
    "builtins.next",
    "builtins.object",
    "copyreg._reconstructor",
    "pydoc.locate",
}

#: What a cut or changed stream of plain bytes may raise, whoever pickled it.
UNREADABLE = (EOFError, pickle.UnpicklingError)


@functools.cache
def _pair(key):
    """Return an estimator fitted by the test engine, and a plain one."""
    original = all_classes()[key]._accelsk_original
    case = case_of(all_classes()[key])
    data = case.data()
    arguments = (data.y,) if data.X is None else (data.X, data.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(
            cls(**case.parameters).fit(*arguments) for cls in (generic_of(original), original)
        )


def _methods(key):
    ours = _pair(key)[0]
    skipped = ("fit", "score", "inverse_transform")
    return [m for m in engine_of(ours).methods if not m.startswith(skipped)]


def _called(key, estimator, method):
    new = case_of(all_classes()[key]).data().new
    return outcome_of(lambda: getattr(estimator, method)(np.array(new)))


def _assert_alike(key, ours, theirs):
    """Assert that all methods give one result, or raise one error."""
    for method in _methods(key):
        found, expected = (_called(key, estimator, method) for estimator in (ours, theirs))
        assert found[1] == expected[1], method
        assert found[2] == expected[2], method
        assert_same(found[0], expected[0], method)


# What a pickle names


@pytest.mark.parametrize("key", KEYS)
def test_pickle_names_what_that_of_the_plain_class_does_and_the_reconstructors(key):
    ours, theirs = (_globals(pickle.dumps(estimator, 5)) for estimator in _pair(key))
    assert ours - theirs == RECONSTRUCTORS
    cls = all_classes()[key]
    unfitted = pickle.dumps(cls(**case_of(cls).parameters), 5)
    assert _globals(unfitted) >= RECONSTRUCTORS
    assert unfitted.count(b"accelsk") == 1
    assert f"{cls.__module__}.{cls.__name__}".encode() in unfitted


def _in_fresh_process(code, *arguments, python=(), timeout=120):
    done = subprocess.run(
        [sys.executable, *python, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loading_imports_no_library_of_the_device(tmp_path):
    path = tmp_path / "models.pkl"
    fitted = [cls(**case_of(cls).parameters) for cls in (all_classes()[key] for key in KEYS)]
    path.write_bytes(pickle.dumps(fitted))
    out = _in_fresh_process(
        """
        import pickle, sys
        models = pickle.load(open(sys.argv[1], "rb"))
        assert all(type(m).__module__.startswith("accelsk.") for m in models)
        gpu = {"cupy", "cuml", "cudf", "rmm", "pylibraft", "raft_dask", "numba", "cuda"}
        other = {"umap", "hdbscan"}
        print(sorted((gpu | other) & {name.partition(".")[0] for name in sys.modules}))
        """,
        path,
    )
    assert out == "[]\n"


def test_loading_opens_runs_and_imports_nothing(tmp_path):
    """Python is asked for a module named like the class, and has none: `pydoc.locate` does that."""
    path = tmp_path / "models.pkl"
    path.write_bytes(pickle.dumps([_pair(key)[1] for key in KEYS]))
    ours = [accelsk.from_sklearn(plain) for plain in pickle.loads(path.read_bytes())]
    (tmp_path / "ours.pkl").write_bytes(pickle.dumps(ours))
    out = _in_fresh_process(
        """
        import pickle, sys
        import accelsk
        accelsk.supported()  # imports what has accelerated classes
        seen = {name: set() for name in sys.argv[1:]}
        streams = {name: open(name, "rb").read() for name in seen}
        for name in seen:
            pickle.loads(streams[name])  # imports are over
        current = None
        def hook(event, arguments):
            if current is None or event == "builtins.id":
                return
            if event == "import" and arguments[0].rpartition(".")[0] in sys.modules:
                name = arguments[0].rpartition(".")[2]
                if name[0].isupper():
                    return
            seen[current].add(event)
        sys.addaudithook(hook)
        for current in seen:
            pickle.loads(streams[current])
        current = None
        plain, ours = seen.values()
        print(sorted(ours - plain))
        """,
        path,
        tmp_path / "ours.pkl",
    )
    assert out == "[]\n"


# Cut short


def _cuts(stream, n=150):
    return sorted({*range(0, len(stream), max(1, len(stream) // n)), *range(len(stream))[-40:]})


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("key", KEYS)
def test_pickle_that_is_cut_short_fails(key, protocol):
    stream = pickle.dumps(_pair(key)[0], protocol)
    for end in _cuts(stream):
        with pytest.raises(UNREADABLE):
            pickle.loads(stream[:end])


def test_pickle_that_is_cut_anywhere_fails():
    stream = pickle.dumps(_pair("linear_model.Ridge")[0])
    for end in range(len(stream)):
        with pytest.raises(UNREADABLE):
            pickle.loads(stream[:end])


def _errors(path, content, **options):
    found = set()
    for end in _cuts(content, 60):
        path.write_bytes(content[:end])
        try:
            joblib.load(path, **options)
        except Exception as error:
            found.add(type(error))
        else:  # what is missing is a checksum
            assert end > len(content) - 40
            found.add(None)
    return found


@pytest.mark.parametrize(
    ("compress", "mmap_mode"), [(0, None), (0, "r"), (3, None), (("gzip", 3), None)]
)
@pytest.mark.parametrize("key", ["linear_model.Ridge", "ensemble.RandomForestClassifier"])
def test_joblib_file_that_is_cut_short_fails_as_that_of_the_plain_class(
    key, compress, mmap_mode, tmp_path
):
    found, expected = set(), {*UNREADABLE, ValueError, zlib.error}
    for estimator, errors in zip(_pair(key), (found, expected), strict=True):
        path = tmp_path / "model.joblib"
        joblib.dump(estimator, path, compress=compress)
        errors |= _errors(path, path.read_bytes(), mmap_mode=mmap_mode)
    assert found <= expected


# Tampered with


def _loaded(cls, state):
    estimator = cls.__new__(cls)
    return estimator, outcome_of(lambda: estimator.__setstate__(copy.deepcopy(state)))


#: Where scikit-learn hands libsvm something else, that reads memory that is not its own.
_OF_LIBSVM = ("_dual", "_eff", "_gamma", "_int", "_n_", "_prob", "_sparse", "dual", "shape", "supp")


def _states(key):
    """Yield fitted states with something missing, or of another type, and what that is."""
    state = _pair(key)[1].__getstate__()
    for name in state:
        if key in ("svm.SVC", "svm.SVR") and name.startswith(_OF_LIBSVM):
            continue
        yield f"no {name}", {k: v for k, v in state.items() if k != name}
        for value in (None, "x", np.array(["x"])):
            yield f"{name}={value!r}", {**state, name: value}
    yield "more", {**state, "whatever_": 3, "coef": "x", "__class__": 3}


@pytest.mark.parametrize("key", KEYS)
def test_state_with_items_missing_or_wrong_fares_as_in_the_plain_class(key):
    ours, theirs = map(type, _pair(key))
    for what, state in _states(key):
        (found, told), (expected, expected_told) = (_loaded(cls, state) for cls in (ours, theirs))
        assert told == expected_told, what
        assert vars(found).keys() == vars(expected).keys(), what
        _assert_alike(key, found, expected)


@pytest.mark.parametrize("state", [None, [], (), 3, "x", {1: 2}, {"coef_": 3}], ids=str)
def test_state_that_is_none_raises_what_the_plain_class_raises(state):
    (ours, found), (theirs, expected) = (
        _loaded(cls, state) for cls in (Ridge, Ridge._accelsk_original)
    )
    assert found == expected
    assert vars(ours) == vars(theirs)


def test_model_on_a_device_cannot_be_put_into_a_pickle(data):
    line = AcceleratedLine().fit(*data)
    _ = line.coef_
    for stowaway in (3, None, vars(line)[SLOT]):
        loaded, _ = _loaded_as_is(AcceleratedLine, {**line.__getstate__(), SLOT: stowaway})
        assert SLOT not in vars(loaded)
        assert_same(loaded.predict(data[0]), line.predict(data[0]))


def _loaded_as_is(cls, state):
    estimator = cls.__new__(cls)
    return estimator, estimator.__setstate__(state)


def test_state_put_onto_a_fitted_estimator_takes_the_place_of_its_model(data):
    X, y = data
    for fetched in (False, True):
        line, other = AcceleratedLine().fit(X, y), AcceleratedLine().fit(X, -2 * y)
        if fetched:
            _ = line.coef_
        line.__setstate__(other.__getstate__())
        assert_same(line.predict(X), other.predict(X))
        line.__setstate__({"coef_": np.zeros(3)})
        assert_same(line.predict(X), np.zeros(40))


def test_state_can_be_put_onto_an_estimator_whose_model_is_lost(data):
    line, other = (AcceleratedLine().fit(*data) for _ in range(2))
    state = other.__getstate__()
    engine_of(line).failing = {"attributes": FakeCudaError(ILLEGAL_ADDRESS)}
    line.__setstate__(state)
    assert SLOT not in vars(line)
    assert_same(line.predict(data[0]), other.predict(data[0]))


def _renamed(stream, name):
    given = b"accelsk.linear_model.Ridge"
    assert stream.count(given) == 1
    assert len(name) == len(given)
    return stream.replace(given, name)


@pytest.mark.parametrize(
    "name",
    [
        b"accelsk.linear_model.Ridgf",  # a class that this accelsk has not
        b"accelsk.linear_mode1.Ridge",
        b"accelsk1linear_model.Ridge",
        b"                          ",
        b"\x00ccelsk.linear_model.Ridge",
    ],
)
def test_class_that_is_not_there_loads_as_the_plain_one(name):
    loaded = pickle.loads(_renamed(pickle.dumps(Ridge(alpha=3)), name))
    assert type(loaded) is Ridge._accelsk_original
    assert loaded.alpha == 3


def test_what_is_no_class_is_not_called(monkeypatch):
    called = []
    module = types.ModuleType("tampered")
    module.with_this_function = lambda *args: called.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tampered", module)
    stream = _renamed(pickle.dumps(Ridge()), b"tampered.with_this_functio")
    assert type(pickle.loads(stream)) is Ridge._accelsk_original  # there is nothing of that name
    module.with_this_functio = module.with_this_function
    for damaged in (stream, _renamed(pickle.dumps(Ridge()), b"." * 26)):  # which is `builtins`
        with pytest.raises(TypeError):
            pickle.loads(damaged)
    assert not called


def test_every_changed_bit_of_what_is_accelsks_own_is_an_error_or_changes_the_name(tmp_path):
    """In a process of its own, with little memory: the machinery of pickles may want a lot."""
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Ridge(), 4))
    out = _in_fresh_process(
        """
        import json, pickle, resource, sys, warnings
        from accelsk.linear_model import Ridge
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        stream = open(sys.argv[1], "rb").read()
        before = set(sys.modules)
        kinds = set()
        for place in range(2, stream.index(b"alpha")):
            for bit in range(8):
                changed = bytearray(stream)
                changed[place] ^= 1 << bit
                try:
                    kinds.add(type(pickle.loads(changed)).__module__.partition(".")[0])
                except Exception as error:
                    assert not isinstance(error, AssertionError)
        print(json.dumps([sorted(kinds), sorted(set(sys.modules) - before)]))
        """,
        path,
    )
    kinds, imported = json.loads(out)
    assert {"accelsk", "sklearn"} <= set(kinds) <= {"accelsk", "sklearn", "builtins"}
    assert not imported


# Ways round


@pytest.mark.parametrize("key", KEYS)
def test_model_in_mapped_memory_answers_as_the_plain_one(key, tmp_path):
    loaded = []
    for estimator in _pair(key):
        path = tmp_path / type(estimator).__module__
        joblib.dump(estimator, path)
        loaded.append(joblib.load(path, mmap_mode="r"))
        assert type(loaded[-1]) is type(estimator)
    _assert_alike(key, *loaded)


@pytest.mark.parametrize(
    "round_trip",
    [
        copy.copy,
        copy.deepcopy,
        lambda estimator: pickle.loads(cloudpickle.dumps(estimator)),
        lambda estimator: pickle.loads(pickle._dumps(estimator, 0)),  # the one written in Python
    ],
    ids=["copy", "deepcopy", "cloudpickle", "pickle in Python"],
)
@pytest.mark.parametrize("key", KEYS)
def test_duplicate_answers_as_the_plain_one(key, round_trip):
    duplicate = round_trip(_pair(key)[0])
    assert type(duplicate) is type(_pair(key)[0])
    assert SLOT not in vars(duplicate)
    _assert_alike(key, duplicate, _pair(key)[1])


def test_class_pickled_by_value_computes_on_the_engine(data):
    cls = type("Mine", (AcceleratedLine,), {"__module__": "__main__", "twice": lambda self: 2})
    loaded = pickle.loads(cloudpickle.dumps(cls().fit(*data)))
    engine_of(loaded).counts.clear()
    assert_same(loaded.predict(data[0]), AcceleratedLine().fit(*data).predict(data[0]))
    assert engine_of(loaded).counts["restore"] == 1
    assert loaded.twice() == 2


# Versions


def test_pickle_knows_no_version_of_accelsk(monkeypatch):
    """What is in it is scikit-learn's alone, so only that version counts."""
    stream = pickle.dumps(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]))
    assert accelsk.__version__.encode() not in stream
    monkeypatch.setattr(accelsk, "__version__", "99.0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(stream)


@pytest.mark.parametrize("version", ["0.1", None, 3, "absent"])
def test_version_of_scikit_learn_is_warned_of_as_by_the_plain_class(version):
    for key in ("linear_model.Ridge", "svm.SVC", "naive_bayes.GaussianNB"):
        state = all_classes()[key]().__getstate__()
        assert state["_sklearn_version"] == sklearn.__version__
        state["_sklearn_version"] = version
        if version == "absent":
            del state["_sklearn_version"]
        cls = all_classes()[key]
        (_, (_, _, told)), (_, (_, _, expected)) = (
            _loaded(c, state) for c in (cls, cls._accelsk_original)
        )
        assert told == expected
        assert [category for category, _ in told] == [InconsistentVersionWarning]
