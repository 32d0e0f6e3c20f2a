"""What a call leaves alone, and what it survives: shortage of memory, threads, CUDA errors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from class_cases import all_classes, blobs, case_of, classification, regression
from gpu_oracle import outcomes
from test_gpu_every_class import every_class, fit

import accelsk
from accelsk.cluster import KMeans
from accelsk.decomposition import PCA
from accelsk.ensemble import RandomForestRegressor
from accelsk.linear_model import LogisticRegression, Ridge
from accelsk.neighbors import NearestNeighbors

pytestmark = pytest.mark.gpu


@every_class
def test_nothing_is_printed(cls: Any, capfd: Any) -> None:
    case = case_of(cls)
    actual = cls(**case.parameters)
    fit(actual, case.data())
    with accelsk.config_context(on_fallback="log"):
        outcomes(actual, case.data())
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""


def test_no_setting_of_the_gpu_libraries_is_changed() -> None:
    import cupy
    import rmm
    from cuml.internals import logger as cuml_logger
    from cuml.internals.global_settings import GlobalSettings

    def settings() -> tuple[Any, ...]:
        return (
            cupy.cuda.get_allocator(),
            cupy.cuda.get_pinned_memory_allocator()
            if hasattr(cupy.cuda, "get_pinned_memory_allocator")
            else None,
            type(rmm.mr.get_current_device_resource()),
            cuml_logger.get_level(),
            GlobalSettings().output_type,
            cupy.cuda.get_current_stream(),
            cupy.cuda.Device().id,
            np.geterr(),
        )

    before = settings()
    for cls in all_classes().values():
        case = case_of(cls)
        actual = cls(**case.parameters)
        fit(actual, case.data())
        with accelsk.config_context(on_fallback="log"):
            outcomes(actual, case.data())
        assert settings() == before, cls.__name__


def test_warning_filters_are_left_alone() -> None:
    before = list(warnings.filters)
    forest = RandomForestRegressor(n_estimators=3).fit(*regression()[:2])
    assert len(forest.estimators_) == 3
    assert list(warnings.filters) == before


def test_many_threads_predict_with_one_model() -> None:
    X, y, new, _, _ = classification()
    models = [
        Ridge().fit(X, y),
        LogisticRegression().fit(X, y),
        NearestNeighbors().fit(X),
        RandomForestRegressor(n_estimators=5).fit(X, y),
        KMeans(3, random_state=0).fit(X),
    ]

    def answer(model: Any) -> Any:
        with accelsk.config_context(device="gpu", on_fallback="raise"):
            if isinstance(model, NearestNeighbors):
                return model.kneighbors(new)[1]
            return model.predict(new)

    for model in models:
        expected = answer(model)
        with ThreadPoolExecutor(16) as pool:
            for result in pool.map(answer, [model] * 32):
                np.testing.assert_array_equal(result, expected)


def test_many_threads_fit_models_of_their_own() -> None:
    X, y, _, _, _ = regression()

    def coef(alpha: float) -> np.ndarray:
        with accelsk.config_context(device="gpu", on_fallback="raise"):
            return Ridge(alpha=alpha).fit(X, y).coef_

    alphas = np.arange(1.0, 17.0)
    alone = [coef(alpha) for alpha in alphas]
    with ThreadPoolExecutor(16) as pool:
        for left, right in zip(pool.map(coef, alphas), alone, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12)


def test_threads_that_read_attributes_at_once_fetch_them_once() -> None:
    X, y, _, _, _ = regression()
    forest = RandomForestRegressor(n_estimators=20, random_state=0).fit(X, y)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: forest.estimators_, range(16)))
    assert all(trees is found[0] for trees in found)


# Memory


@contextmanager
def little_memory_for_cupy() -> Iterator[None]:
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.get_limit()
    pool.set_limit(size=pool.used_bytes() + (1 << 20))
    try:
        yield
    finally:
        pool.set_limit(size=before)


@contextmanager
def little_memory_for_rmm() -> Iterator[None]:
    import rmm

    before = rmm.mr.get_current_device_resource()
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(before, 4096))
    try:
        yield
    finally:
        rmm.mr.set_current_device_resource(before)


@pytest.mark.parametrize("shortage", [little_memory_for_cupy, little_memory_for_rmm])
@pytest.mark.parametrize("cls", [Ridge, PCA, KMeans])
def test_a_fit_that_runs_out_of_memory_ends_in_scikit_learn(
    cls: Any, shortage: Any, on_gpu: Any
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 20))
    y = X[:, 0] + rng.normal(size=len(X))
    actual = cls(random_state=0) if "random_state" in cls._get_param_names() else cls()
    actual.fit(X[:100], y[:100])
    with shortage(), on_gpu.allowed() as results:
        actual.fit(X, y)
    stats = results.method_calls[f"{cls.__name__}.fit"]
    if shortage is little_memory_for_cupy:
        assert stats.fallback_reasons == {"the GPU ran out of memory"}
    before = on_gpu.count()
    actual.fit(X, y)
    assert on_gpu.count() == before + 1
    on_gpu.expected = True


def test_a_call_that_runs_out_of_memory_keeps_the_model(on_gpu: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 20))
    model = NearestNeighbors(n_neighbors=3).fit(X[:1000])
    expected = model.kneighbors(X[:50])
    with little_memory_for_cupy(), on_gpu.allowed() as results:
        model.kneighbors(X)
    assert results.method_calls["NearestNeighbors.kneighbors"].fallback_reasons == {
        "the GPU ran out of memory"
    }
    again = model.kneighbors(X[:50])
    np.testing.assert_array_equal(again[1], expected[1])


# CUDA errors


def _run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
        check=False,
    )


def test_after_a_cuda_error_everything_runs_in_scikit_learn(on_gpu: Any) -> None:
    on_gpu.expected = False  # the calls are made by another process
    done = _run(
        """
        import warnings
        import numpy as np
        import accelsk, cupy
        from accelsk.linear_model import Ridge, LinearRegression
        from accelsk.cluster import KMeans

        X = np.random.default_rng(0).normal(size=(200, 4)); y = X @ [1, 2, 3, 4.0]
        with accelsk.profile(quiet=True) as before:
            model = Ridge().fit(X, y); coef = model.coef_.copy()
        assert before.method_calls["Ridge.fit"].gpu_calls == 1
        wild = cupy.RawKernel(
            'extern "C" __global__ void wild(long long* p) { *(p + (1LL << 44)) = 1; }', "wild"
        )
        wild((1,), (1,), (cupy.zeros(1, cupy.int64),))
        with accelsk.profile(quiet=True) as after:
            for _ in range(3):
                other = Ridge().fit(X, y)
                np.testing.assert_allclose(other.coef_, coef)
            model.predict(X)
            KMeans(2, n_init=1).fit(X)
        for name, stats in after.method_calls.items():
            assert stats.gpu_calls == 0, name
            assert stats.fallback_reasons, name
        print(sorted(after.method_calls["Ridge.fit"].fallback_reasons))
        import pickle
        pickle.loads(pickle.dumps(model)).predict(X)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "CUDA error" in done.stdout
    assert done.stderr.count("The GPU is out of use in this process") == 1, done.stderr


def test_a_forked_child_computes_in_scikit_learn_and_the_parent_goes_on(on_gpu: Any) -> None:
    on_gpu.expected = False  # the calls are made by another process
    done = _run(
        """
        import multiprocessing, warnings
        import numpy as np
        import accelsk
        from accelsk.linear_model import Ridge

        warnings.simplefilter("ignore")
        X = np.random.default_rng(0).normal(size=(200, 4)); y = X @ [1, 2, 3, 4.0]
        model = Ridge().fit(X, y)

        def child(queue):
            with accelsk.profile(quiet=True) as results:
                answer = model.predict(X)
                Ridge().fit(X, y)
            queue.put((answer, sum(s.gpu_calls for s in results.method_calls.values())))

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        answer, gpu_calls = queue.get(timeout=60)
        process.join()
        assert gpu_calls == 0
        with accelsk.config_context(on_fallback="raise"):
            np.testing.assert_allclose(model.predict(X), answer)
        """
    )
    assert done.returncode == 0, done.stderr


def test_install_is_idempotent_and_calls_run_with_managed_memory(on_gpu: Any) -> None:
    on_gpu.expected = False  # the calls are made by another process
    done = _run(
        """
        import numpy as np
        import accelsk
        accelsk.install()
        accelsk.install()
        assert accelsk.enabled()
        import rmm
        print(type(rmm.mr.get_current_device_resource()).__name__)
        from accelsk.decomposition import PCA
        X = np.random.default_rng(0).normal(size=(200, 4))
        with accelsk.config_context(on_fallback="raise"):
            PCA(2).fit(X).transform(X)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "Prefetch" in done.stdout
    assert done.stderr == ""


def test_importing_a_class_starts_no_cuda_context(on_gpu: Any) -> None:
    on_gpu.expected = False  # the calls are made by another process
    done = _run(
        """
        import sys
        import accelsk.linear_model, accelsk.cluster, accelsk.ensemble, accelsk.neighbors
        assert accelsk.enabled()
        assert not {"cupy", "cuml", "cudf", "rmm"} & set(sys.modules)
        """
    )
    assert done.returncode == 0, done.stderr


def test_blobs_are_clustered_alike_by_a_grid_search_in_processes() -> None:
    from sklearn.model_selection import GridSearchCV

    X = blobs().X
    with accelsk.config_context(on_fallback="log"):
        search = GridSearchCV(KMeans(random_state=0), {"n_clusters": [2, 4]}, cv=3, n_jobs=2)
        search.fit(X)
    assert search.best_params_ == {"n_clusters": 4}
