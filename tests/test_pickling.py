"""A pickle loads as the accelerated class where that can be imported, else as scikit-learn's."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import pickletools
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from comparison import assert_same
from engine import AcceleratedLine, Line, engine_of
from sklearn.base import clone
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import make_pipeline

import accelsk
import accelsk.cluster
import accelsk.decomposition
import accelsk.ensemble
import accelsk.linear_model
import accelsk.neighbors
from accelsk.estimator import SLOT

TESTS = Path(__file__).parent
ROOT = TESTS.parent

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

CLASSES = [
    accelsk.linear_model.Ridge,
    accelsk.linear_model.LogisticRegression,
    accelsk.cluster.KMeans,
    accelsk.cluster.DBSCAN,
    accelsk.decomposition.PCA,
    accelsk.ensemble.RandomForestClassifier,
    accelsk.neighbors.KNeighborsClassifier,
]

assert all(map(accelsk.is_proxy, CLASSES))

#: What a stream may name, and what these are called in protocols that Python 2 reads.
_PORTABLE = {"builtins", "copyreg", "pydoc", "sklearn", "numpy", "scipy"}
_PYTHON_2 = {"__builtin__", "copy_reg", "itertools", "_codecs"}

#: Makes every import of the named packages fail as if they were not installed.
BLOCK = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def _run(code, *, without=(), path=(ROOT, TESTS)):
    """Return what `code` prints in a fresh process."""
    program = BLOCK.format(names=set(without)) + textwrap.dedent(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _fit(cls, data):
    X, y = data
    estimator = cls().set_params(
        **{k: 2 for k in ("n_clusters", "n_components", "n_estimators") if hasattr(cls(), k)}
    )
    labels = np.where(y > y.mean(), "above", "below")
    return estimator.fit(X, labels if sklearn.base.is_classifier(estimator) else y)


def _globals(stream):
    """Return the ``module.name`` of everything that a pickle looks up."""
    strings, memo, found = [], {}, set()
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "GLOBAL":
            found.add(argument.replace(" ", "."))
        elif opcode.name == "STACK_GLOBAL":
            found.add(".".join(strings[-2:]))
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else None
        elif "GET" in opcode.name:
            strings.append(memo.get(argument))
        elif isinstance(argument, str):
            strings.append(argument)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_pickle_loads_as_the_accelerated_class(cls, protocol, data):
    estimator = _fit(cls, data)
    loaded = pickle.loads(pickle.dumps(estimator, protocol))
    assert type(loaded) is cls
    assert vars(loaded).keys() == vars(estimator).keys()
    assert repr(loaded) == repr(estimator)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_stream_names_nothing_of_accelsk(cls, protocol, data):
    stream = pickle.dumps(_fit(cls, data), protocol)
    names = _globals(stream)
    assert names
    assert {name.partition(".")[0] for name in names} <= _PORTABLE | (
        _PYTHON_2 if protocol < 3 else set()
    )


@pytest.mark.parametrize("cls", [CLASSES[0], CLASSES[-1]], ids=lambda c: c.__name__)
def test_pickle_loads_without_accelsk(cls, data, tmp_path):
    X, _ = data
    estimator = _fit(cls, data)
    for protocol in PROTOCOLS:
        (tmp_path / f"{protocol}.pkl").write_bytes(pickle.dumps(estimator, protocol))
    np.save(tmp_path / "X.npy", X)
    out = _run(
        f"""
        import pathlib, pickle, warnings
        warnings.simplefilter("error")
        import numpy as np
        folder = pathlib.Path({str(tmp_path)!r})
        for path in sorted(folder.glob("*.pkl")):
            model = pickle.loads(path.read_bytes())
            print(type(model).__module__, sorted(vars(model)))
            np.save(path.with_suffix(".npy"), model.predict(np.load(folder / "X.npy")))
        """,
        without=["accelsk"],
    )
    assert set(out.splitlines()) == {
        f"{cls._accelsk_original.__module__} {sorted(vars(estimator))}"
    }
    for protocol in PROTOCOLS:
        predicted = np.load(tmp_path / f"{protocol}.npy", allow_pickle=True)
        np.testing.assert_array_equal(predicted, estimator.predict(X))


def test_pickle_loads_in_a_fresh_process_with_accelsk(data, tmp_path):
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(_fit(CLASSES[0], data)))
    out = _run(
        f"""
        import pickle, sys
        assert "accelsk" not in sys.modules
        model = pickle.load(open({str(tmp_path / "model.pkl")!r}, "rb"))
        print(type(model).__module__, model.predict([[1.0, 2.0, 3.0]]).shape)
        """
    )
    assert out == "accelsk.linear_model (1,)"


def test_pickle_of_a_registered_class_loads_with_and_without_accelsk(data, tmp_path):
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(AcceleratedLine().fit(*data)))
    (tmp_path / "foreign.py").write_text("")
    code = f"""
        import pickle
        model = pickle.load(open({str(path)!r}, "rb"))
        print(type(model).__name__, sorted(vars(model)))
        """
    names = "['coef_', 'forbidden', 'n_features_in_', 'scale_', 'shrinkage']"
    assert _run(code) == f"AcceleratedLine {names}"
    assert "_sklearn_version" not in AcceleratedLine().__getstate__()


def test_unfitted_estimators_pickle_too():
    for cls in CLASSES:
        assert type(pickle.loads(pickle.dumps(cls()))) is cls


@pytest.mark.parametrize("compress", [0, 3])
def test_joblib_dump_and_load(compress, data, tmp_path):
    estimator = _fit(CLASSES[0], data)
    joblib.dump(estimator, tmp_path / "model.joblib", compress=compress)
    loaded = joblib.load(tmp_path / "model.joblib")
    assert type(loaded) is CLASSES[0]
    assert_same(loaded.coef_, estimator.coef_)


def test_joblib_memory_maps_attributes(data, tmp_path):
    joblib.dump(AcceleratedLine().fit(*data), tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    assert isinstance(loaded.coef_, np.memmap)
    assert_same(loaded.predict(data[0]), Line().fit(*data).predict(data[0]))


def test_joblib_hash_does_not_depend_on_where_the_model_is(data):
    unfetched, fetched = AcceleratedLine().fit(*data), AcceleratedLine().fit(*data)
    _ = fetched.coef_
    assert joblib.hash(unfetched) == joblib.hash(fetched)


def test_pickle_inside_a_pipeline(data):
    pipeline = make_pipeline(AcceleratedLine()).fit(*data)
    loaded = pickle.loads(pickle.dumps(pipeline))
    assert type(loaded[-1]) is AcceleratedLine
    assert_same(loaded.predict(data[0]), pipeline.predict(data[0]))


def test_loaded_model_predicts_on_the_engine_without_a_refit(data):
    loaded = pickle.loads(pickle.dumps(AcceleratedLine().fit(*data)))
    engine_of(loaded).counts.clear()
    with accelsk.config_context(on_fallback="raise"):
        loaded.predict(data[0])
        loaded.predict(data[0])
    assert engine_of(loaded).counts == {"restore": 1, "predict": 2}


def test_pickle_holds_nothing_of_the_device(data):
    line = AcceleratedLine().fit(*data)
    state = line.__getstate__()
    assert SLOT not in state
    assert {"coef_", "scale_"} <= state.keys()
    assert SLOT in vars(line)


def test_clone_is_unfitted_and_of_the_same_class(data):
    line = AcceleratedLine(shrinkage=0.5).fit(*data)
    duplicate = clone(line)
    assert type(duplicate) is AcceleratedLine
    assert vars(duplicate) == {"shrinkage": 0.5, "forbidden": False}
    assert engine_of(line).counts == {"fit": 1}


@pytest.mark.parametrize("without", [True, False])
def test_version_mismatch_warns_as_scikit_learn_does(without, data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sklearn, "__version__", "1.5.0")
        patch.setattr("sklearn.base.__version__", "1.5.0")
        stream = pickle.dumps(_fit(CLASSES[0], data))
    if not without:
        with pytest.warns(InconsistentVersionWarning, match=r"estimator Ridge from .*1\.5"):
            loaded = pickle.loads(stream)
        assert "_sklearn_version" not in vars(loaded)
        return
    (tmp_path / "model.pkl").write_bytes(stream)
    out = _run(
        f"""
        import pathlib, pickle, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pickle.loads(pathlib.Path({str(tmp_path / "model.pkl")!r}).read_bytes())
        print([w.category.__name__ for w in caught])
        """,
        without=["accelsk"],
    )
    assert out == "['InconsistentVersionWarning']"


def test_same_version_does_not_warn(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(_fit(CLASSES[0], data)))


def test_pickle_of_the_plain_class_loads_plain(data):
    stream = pickle.dumps(_fit(CLASSES[0], data)._accelsk_original().fit(*data))
    assert type(pickle.loads(stream)) is CLASSES[0]._accelsk_original


def test_cloudpickle_like_picklers_with_reducer_tables_work(data):
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.dispatch_table = copyreg.dispatch_table.copy()
    pickler.dump(AcceleratedLine().fit(*data))
    assert type(pickle.loads(buffer.getvalue())) is AcceleratedLine
