"""Where a call is sooner: the model, the decision, what is kept of a machine."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from engine import AcceleratedLine, engine_of, generic
from hypothesis import given
from scipy import sparse
from sklearn.cluster import KMeans as PlainKMeans

import accelsk
from accelsk.costs import decision, expected, ledger, machine, startup, store, weigh
from accelsk.costs.model import CPU, Curve, Observation, Table, fitted
from accelsk.costs.work import WORK, Work, letters
from accelsk.device import probe
from accelsk.exceptions import Sooner
from accelsk.registry import accelerated_classes

NAME = "linear_model.Ridge"

#: The CPU takes 1 us for a row, the engine 1 ms for anything and a hundredth of that for a row.
CURVES = {
    CPU: Curve(((1e-6, "n"),)),
    "test": Curve(((1e-3, "1"), (1e-8, "n"))),
}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Coefficients of the test-suite's line, and a process in which its engine has run."""
    found = Table(
        machine={"gpu": "a test"},
        speed={"gpu bus": 0.0},
        load={"cupy": 2.0, "cuml": 5.0},
        curves={
            f"{NAME}.fit": CURVES,
            f"{NAME}.predict": CURVES,
            f"{NAME}.fetch": {"test": Curve(((1e-4, "1"),))},
            f"{NAME}.restore": {"test": Curve(((1e-2, "1"),))},
        },
    )
    monkeypatch.setattr(store, "_table", found)
    monkeypatch.setattr(decision, "name_of", lambda cls: NAME)
    decision._work.cache_clear()
    for method in ("fit", "predict"):
        startup.mark("test", f"{NAME}.{method}")
    return found


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(rows, 2))
    return X, X.sum(axis=1)


def ran_on_engine(method: str, call: Any) -> bool:
    before = engine_of(AcceleratedLine).counts[method]
    call()
    return engine_of(AcceleratedLine).counts[method] > before


# The model

SIZES = st.integers(1, 10**9)


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from(sorted(WORK)))
def test_more_data_is_never_expected_to_take_less_time(
    rows, columns, more_rows, more_columns, name
):
    work = WORK[name]
    estimator = SimpleNamespace(eps=0.1, degree=2)
    few, many = sorted((rows, more_rows)), sorted((columns, more_columns))
    for method in ("fit", "predict", "fetch"):
        for on_cpu in (True, False):
            curve = Curve(tuple((1.0, term) for term in work.terms(method, on_cpu=on_cpu)))
            times = [
                curve.seconds(letters(work, estimator, n, d))
                for n, d in ((few[0], many[0]), (few[1], many[0]), (few[1], many[1]))
            ]
            assert times == sorted(times)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-6, 1e3)), min_size=1, max_size=12))
def test_coefficients_are_never_negative(points):
    observations = [
        Observation(letters(Work(), None, rows, 5), seconds) for rows, seconds in points
    ]
    curve = fitted(("1", "n", "nd", "nds"), observations)
    assert curve is not None
    assert all(0 <= c < math.inf for c, _ in curve.terms)


def test_coefficients_are_found_again():
    true = Curve(((2e-4, "1"), (3e-9, "nd"), (1e-12, "nds")))
    sizes = [letters(Work(), None, n, d) for n in (50, 1_000, 30_000, 500_000) for d in (4, 100)]
    found = fitted(("1", "n", "nd", "nds", "sss"), [Observation(s, true.seconds(s)) for s in sizes])
    assert found is not None
    assert {t: pytest.approx(c, rel=0.05) for c, t in true.terms} == {t: c for c, t in found.terms}


def test_terms_that_nothing_measured_needs_do_not_rule_beyond_it():
    sizes = [letters(Work(), None, n, 10) for n in (100, 1_000, 10_000, 100_000)]
    noise = (1.01, 0.99, 1.0, 1.02)
    found = fitted(
        ("1", "n", "nn"),
        [Observation(s, k * (1e-3 + 1e-6 * s["n"])) for s, k in zip(sizes, noise, strict=True)],
    )
    assert found is not None
    assert [term for _, term in found.terms] == ["1", "n"]


def test_coefficients_known_before_stay_where_nothing_was_measured_of_them():
    likely = Curve(((1e-3, "1"), (1e-9, "nd"), (5e-9, "e"), (2e-12, "nds")))
    sizes = [letters(Work(), None, n, 8) for n in (64, 1_000, 8_000)]  # the caches hold them
    true = Curve(((3e-3, "1"), (3e-9, "nd")))
    found = fitted(("1", "nd", "e"), [Observation(s, true.seconds(s)) for s in sizes], likely)
    assert found is not None
    coefficients = {term: c for c, term in found.terms}
    assert coefficients["1"] == pytest.approx(3e-3, rel=0.15)
    assert coefficients["e"] == pytest.approx(5e-9)
    assert coefficients["nds"] > 0


def test_what_was_measured_overrules_what_was_known_before():
    likely = Curve(((1e-3, "1"), (1e-7, "nd")))  # a hundred times as much as it takes
    sizes = [letters(Work(), None, n, d) for n in (64, 8_000, 10**6) for d in (8, 256)]
    true = Curve(((2e-4, "1"), (1e-9, "nd")))
    found = fitted(("1", "n", "nd"), [Observation(s, true.seconds(s)) for s in sizes], likely)
    assert found is not None
    for s in [*sizes, letters(Work(), None, 10**8, 100)]:
        assert found.seconds(s) == pytest.approx(true.seconds(s), rel=0.25)


@given(
    st.lists(st.tuples(SIZES, st.floats(1e-6, 1e3)), min_size=1, max_size=8),
    st.lists(st.floats(0, 1e-3), min_size=4, max_size=4),
)
def test_more_data_is_never_expected_to_take_less_time_whatever_was_measured(points, before):
    terms = ("1", "n", "nd", "nds")
    observations = [Observation(letters(Work(), None, rows, 5), s) for rows, s in points]
    found = fitted(terms, observations, Curve(tuple(zip(before, terms, strict=True))))
    assert found is not None
    assert all(0 <= c < math.inf for c, _ in found.terms)
    times = [found.seconds(letters(Work(), None, n, d)) for n in (10, 10**4, 10**8) for d in (5, 9)]
    assert times[::2] == sorted(times[::2])
    assert times[1::2] == sorted(times[1::2])


def test_products_of_large_sizes_are_no_integers_that_overflow():
    sizes = [letters(Work(), None, n, 10) for n in (10, 10**7, 10**8)]
    found = fitted(("1", "nnn"), [Observation(s, 1e-3 + s["n"] * 1e-9) for s in sizes])
    assert found is not None
    assert found.seconds(sizes[-1]) > 0


def test_the_caches_of_the_processor_matter_on_the_cpu_alone():
    for work in (Work(), *WORK.values()):
        for method in ("fit", "predict", "fit_transform"):
            assert "e" not in work.terms(method, on_cpu=False)
    assert "e" in Work().terms("fit", on_cpu=True)


def test_nothing_measured_gives_no_coefficients():
    assert fitted(("1", "n"), []) is None


def test_float32_counts_for_what_grows_only():
    curve = Curve(((1.0, "1"), (2.0, "n"), (4.0, "hnd")), narrow=0.5)
    sizes = letters(Work(), None, 3, 2)
    assert curve.seconds(sizes) == 1 + 6 + 24
    assert curve.seconds(sizes, narrow=True) == 1 + 3 + 24


@pytest.mark.parametrize(
    ("name", "parameters", "letter", "value"),
    [
        ("cluster.KMeans", {"n_clusters": 30}, "k", 30),
        ("cluster.KMeans", {"n_init": "auto"}, "i", 1),
        ("decomposition.PCA", {"n_components": None}, "k", 20),
        ("decomposition.PCA", {"n_components": 0.9}, "k", 20),
        ("decomposition.PCA", {"n_components": np.int64(3)}, "k", 3),
        ("ensemble.RandomForestClassifier", {"n_estimators": 7}, "t", 7),
        ("ensemble.RandomForestClassifier", {"max_depth": 2}, "l", 2),
        ("preprocessing.PolynomialFeatures", {"degree": 2}, "k", 231),
        (
            "random_projection.GaussianRandomProjection",
            {"n_components": "auto", "eps": 0.5},
            "k",
            331,
        ),
    ],
)
def test_hyperparameters_that_matter_are_letters(name, parameters, letter, value):
    found = letters(WORK[name], SimpleNamespace(**parameters), 1_000, 20)
    assert found[letter] == pytest.approx(value, rel=0.01)


def test_every_name_in_the_table_is_a_class():
    names = {decision.name_of(cls) for cls in accelerated_classes().values()}
    optional = {"hdbscan.HDBSCAN", "umap.UMAP"}
    assert set(WORK) - optional <= names


# The decision


@pytest.mark.parametrize(("rows", "on_engine"), [(20, False), (900, False), (100_000, True)])
def test_a_call_goes_where_it_is_sooner(table, rows, on_engine):
    X, y = data(rows)
    assert ran_on_engine("fit", lambda: AcceleratedLine().fit(X, y)) is on_engine


def test_the_reason_tells_both_times(table):
    with accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data(20))
    (reason,) = results.method_calls["Line.fit"].fallback_reasons
    assert reason == (
        "sooner on the CPU: 20 rows by 2 columns, expected 0.02 ms there, 1 ms on the GPU"
    )


def test_explain_tells_both_times(table, capsys):
    found = accelsk.explain(AcceleratedLine(), *data(20))
    assert found.engine is None
    assert isinstance(found.reasons[0], Sooner)
    assert found.expected.cpu == pytest.approx(2e-5)
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing else keeps it off a GPU."
    assert str(accelsk.explain(AcceleratedLine(), *data(100_000))) == (
        "Line.fit runs on the GPU (test): 100,000 rows by 2 columns, expected 100 ms on the CPU, "
        "2 ms on the GPU."
    )


@pytest.mark.parametrize("on_fallback", ["log", "warn", "raise"])
def test_sooner_on_the_cpu_is_no_fallback(table, on_fallback):
    with accelsk.config_context(on_fallback=on_fallback):
        AcceleratedLine().fit(*data(20))


def test_device_gpu_overrides_it(table):
    with accelsk.config_context(device="gpu"):
        assert ran_on_engine("fit", lambda: AcceleratedLine().fit(*data(20)))


def test_without_coefficients_nothing_is_held_back():
    assert ran_on_engine("fit", lambda: AcceleratedLine().fit(*data(20)))


def test_an_engine_without_coefficients_is_not_held_back(table):
    table.curves[f"{NAME}.fit"] = {CPU: CURVES[CPU]}
    assert ran_on_engine("fit", lambda: AcceleratedLine().fit(*data(20)))


@pytest.mark.parametrize("X", [None, [], "text", np.float64(3), object()])
def test_data_of_no_known_size_is_no_reason(table, X):
    assert weigh(AcceleratedLine(), AcceleratedLine, "fit", X, [engine_of(AcceleratedLine)]) is None


@pytest.mark.parametrize("X", [[[1.0, 2.0]] * 20, np.ones((20, 2)), np.ones((20, 2), np.float32)])
def test_the_size_of_any_container_counts(table, X):
    found = weigh(AcceleratedLine(), AcceleratedLine, "fit", X, [engine_of(AcceleratedLine)])
    assert found is not None
    assert (found.rows, found.columns) == (20, 2)


def test_a_method_is_as_fast_as_the_one_it_is_an_alias_of(table):
    assert table.of(NAME, "partial_fit") is table.of(NAME, "fit")
    assert table.of(NAME, "transform") is None


def test_the_first_call_counts_loading_and_compiling(table, monkeypatch):
    monkeypatch.setattr(startup, "_loaded", set())
    monkeypatch.setattr(startup, "_compiled", set())
    X, _ = data(100_000)
    found = weigh(AcceleratedLine(), AcceleratedLine, "fit", X, [engine_of(AcceleratedLine)])
    assert found.on_cpu
    assert found.gpu_once == 2.0
    assert "and 2 s to get ready first" in found.reason
    large = np.broadcast_to(X[:1], (10_000_000, 2))
    found = weigh(AcceleratedLine(), AcceleratedLine, "fit", large, [engine_of(AcceleratedLine)])
    assert not found.on_cpu


def test_many_calls_are_worth_loading_the_engine(table, monkeypatch):
    monkeypatch.setattr(startup, "_loaded", set())
    monkeypatch.setattr(startup, "_compiled", set())
    table.load["cupy"] = 0.3
    X, y = data(100_000)  # 100 ms on one side, 2 ms on the other
    went = [ran_on_engine("fit", lambda: AcceleratedLine().fit(X, y)) for _ in range(6)]
    assert went == [False, False, False, True, True, True]


def test_while_a_thread_loads_the_engine_only_the_rest_counts(table, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(startup, "monotonic", lambda: clock[0])
    monkeypatch.setattr(startup, "_loading_since", None)
    startup.loading(True)
    assert startup.remaining(5.0) == 5.0
    clock[0] += 4
    assert startup.remaining(5.0) == 1.0
    clock[0] += 4
    assert startup.remaining(5.0) == 0.5
    startup.loading(False)
    assert startup.remaining(5.0) == 5.0


# Fitted state


def on_gpu(rows: int) -> Any:
    with accelsk.config_context(device="gpu"):
        return AcceleratedLine().fit(*data(rows))


def test_state_that_is_cheap_to_have_lets_small_calls_go_to_the_cpu(table):
    model = on_gpu(20)
    assert not ran_on_engine("predict", lambda: model.predict(data(1)[0]))
    assert engine_of(AcceleratedLine).counts["attributes"] == 1


def test_state_that_is_dear_to_have_keeps_calls_on_the_device_until_they_have_lost_as_much(table):
    table.curves[f"{NAME}.fetch"] = {"test": Curve(((0.01, "1"),))}
    model = on_gpu(20)
    X = data(1)[0]  # about 1 ms on the device, 1 us on the CPU
    went = [ran_on_engine("predict", lambda: model.predict(X)) for _ in range(14)]
    assert went == [True] * 10 + [False] * 4


def test_a_model_that_is_on_the_host_counts_the_way_up(table):
    with accelsk.config_context(device="cpu"):
        model = AcceleratedLine().fit(*data(20))
    X = data(8_000)[0]  # 8 ms on the CPU, 1 ms on the device, 10 ms to get there
    went = [ran_on_engine("predict", lambda: model.predict(X)) for _ in range(4)]
    assert went == [False, True, True, True]


def test_a_fit_makes_what_was_lost_void(table):
    table.curves[f"{NAME}.fetch"] = {"test": Curve(((0.01, "1"),))}
    model = on_gpu(20)
    model.predict(data(1)[0])
    assert ledger.models.lost(model) > 0
    model.fit(*data(20))
    assert ledger.models.lost(model) == 0


def test_debts_are_forgotten_with_their_estimator(table):
    model = AcceleratedLine()
    ledger.models.add(model, 1.0)
    key = id(model)
    del model
    assert key not in ledger.models._lost


def test_state_of_which_nothing_is_known_is_taken_to_be_dear(table):
    del table.curves[f"{NAME}.fetch"]
    model = on_gpu(20)
    assert ran_on_engine("predict", lambda: model.predict(data(1)[0]))


def test_jobs_share_the_trees_and_cost_something_themselves(table, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 10)
    forest = Work(letters={"t": ("n_estimators", 100.0)}, parallel=True)
    monkeypatch.setattr(decision, "WORK", {NAME: forest})
    table.curves[f"{NAME}.fit"] = {CPU: Curve(((1.0, "t"), (3.0, "j"))), "test": CURVES["test"]}
    line, times = AcceleratedLine(), []
    for jobs in (None, -1):
        line.n_jobs = jobs
        times.append(expected(line, "fit", 20, 2).cpu)
    assert times == [pytest.approx(100), pytest.approx(100 / 7 + 3)]
    assert letters(forest, line, 20, 2, jobs=7.0)["t"] == pytest.approx(100 / 7)


def test_a_fit_on_few_rows_counts_its_columns():
    for name in ("covariance.LedoitWolf", "linear_model.Ridge", "decomposition.PCA"):
        curve = Curve(tuple((1.0, t) for t in WORK.get(name, Work()).terms("fit", on_cpu=True)))
        narrow, wide = (letters(Work(), None, 5, d) | {"k": 1.0} for d in (10, 1_000))
        assert curve.seconds(wide) > 1e5 * curve.seconds(narrow)


def test_jobs_count_where_scikit_learn_spreads_the_work(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 8)
    spread = Work(parallel=True)
    for jobs, times in ((None, 1.0), (1, 1.0), (4, 2.8), (-1, 5.6), (100, 5.6)):
        assert decision.jobs(spread, SimpleNamespace(n_jobs=jobs)) == pytest.approx(times)
    assert decision.jobs(Work(), SimpleNamespace(n_jobs=4)) == 1.0


# Data on the device


def test_data_on_the_device_need_no_upload_and_the_cpu_a_download(table):
    table.speed["gpu bus"] = 1.0
    table.curves[f"{NAME}.fit"] = {CPU: CURVES[CPU], "test": Curve(((1.0, "hnd"),))}
    line = AcceleratedLine()
    here = expected(line, "fit", 2**20, 2)
    there = expected(line, "fit", 2**20, 2, resident=True)
    assert here.gpu == 2**21
    assert there.gpu == 0
    assert there.cpu == pytest.approx(here.cpu + 0.5)
    assert expected(line, "spread", 10, 2) is None


# What is kept


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The file of this machine in an empty folder, and a GPU to go with it."""
    gpu = probe.GPU("Test GPU", (9, 0), (13, 0), 2**30)
    monkeypatch.setattr(probe, "_found", (gpu, None))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    monkeypatch.setattr(store, "_table", None)
    monkeypatch.setattr(store, "_adapted", False)
    return store.cache_file()


def measured() -> Table:
    return Table(machine.describe(), {}, {"cupy": 1.0}, {f"{NAME}.fit": CURVES})


def test_what_is_saved_is_in_force(cache):
    assert store.save(measured()) == cache
    assert store.table() == Table.from_json(measured().to_json())
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


def test_without_a_file_the_defaults_are_in_force(cache, caplog):
    assert store.table() == store.default()
    assert not caplog.records


def test_a_table_survives_its_text():
    table = measured()
    table.measured = {f"{NAME}.fit": {CPU: [[20, 2, 1e-3, 2e-3]]}}
    again = Table.from_json(table.to_json())
    assert again.curves == table.curves
    assert again.measured == table.measured


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\xff",
        '{"format": 0}',
        '{"format": 1}',
        json.dumps(
            {"format": 1, "machine": 3, "speed": {}, "load": {}, "calls": {}, "measured": {}}
        ),
        *(
            json.dumps(
                {
                    "format": 1,
                    "machine": {},
                    "speed": {},
                    "load": {},
                    "measured": {},
                    "calls": {"a.b": {"cpu": {"seconds": terms, "float32": 1, "first": 0}}},
                }
            )
            for terms in ({"n": -1}, {"n": "x"}, {"n": math.nan}, {"?": 1.0}, [1], {"n": None})
        ),
    ],
)
def test_a_broken_file_is_ignored_with_a_line_in_the_log(cache, caplog, text):
    cache.parent.mkdir(parents=True)
    cache.write_text(text, "utf-8")
    assert store.table() == store.default()
    assert len(caplog.records) == 1
    assert "cannot be read and are ignored" in caplog.text


def test_a_file_that_is_no_file_is_ignored(cache, caplog):
    cache.mkdir(parents=True)
    assert store.table() == store.default()
    assert "are ignored" in caplog.text


@pytest.mark.parametrize("key", ["gpu", "driver", "processor", "cores", "versions"])
def test_a_file_of_another_machine_or_version_is_ignored(cache, caplog, key):
    foreign = measured()
    foreign.machine[key] = "another"
    store.save(foreign, cache)
    assert store.table() == store.default()
    assert f"since then {key} changed" in caplog.text


def test_a_folder_that_cannot_be_written_is_an_error_of_saving_alone(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        store.save(measured(), tmp_path / "file" / "costs.json")


def test_the_default_table_is_one():
    table = store.default()
    for name, places in table.curves.items():
        assert places, name
    assert json.loads(table.to_json())["format"] == 1


# Another machine


def test_coefficients_are_scaled_by_place_and_kind():
    curves = {CPU: Curve(((1.0, "1"), (1.0, "nd"))), "cuml": Curve(((1.0, "nds"), (1.0, "hnd")))}
    factors = {"cpu call": 2.0, "cpu memory": 3.0, "gpu flops": 4.0, "gpu bus": 5.0}
    scaled = Table(curves={"a.fit": curves}).scaled(factors).curves["a.fit"]
    assert scaled[CPU].terms == ((2.0, "1"), (3.0, "nd"))
    assert scaled["cuml"].terms == ((4.0, "nds"), (5.0, "hnd"))


def test_factors_are_ratios_within_reason():
    here = {"cpu call": 2.0, "cpu memory": 1e9, "gpu flops": 1.0}
    found = machine.factors(here, {"cpu call": 1.0, "cpu memory": 1.0, "gpu memory": 1.0})
    assert found == {"cpu call": 2.0, "cpu memory": 32.0, "gpu call": 2.0}


def test_the_machine_is_measured_once_and_only_where_it_is_another(cache, monkeypatch):
    asked = []
    monkeypatch.setattr(machine, "speeds", lambda: asked.append(1) or {"cpu memory": 2.0})
    default = Table(
        {"gpu": "Other GPU"}, {"cpu memory": 1.0}, {}, {"a.fit": {CPU: Curve(((1.0, "n"),))}}
    )
    monkeypatch.setattr(store, "default", lambda: default)
    store.adapt()
    store.adapt()
    assert len(asked) == 1
    assert store.table().curves["a.fit"][CPU].terms == ((2.0, "n"),)
    default.machine = machine.describe()
    store.forget()
    store.adapt()
    assert len(asked) == 1


def test_a_machine_that_cannot_be_measured_has_the_defaults(cache, monkeypatch):
    monkeypatch.setattr(machine, "speeds", lambda: 1 / 0)
    store.adapt()
    assert store.table() == store.default()


def test_a_class_of_anybody_elses_has_no_name():
    assert decision.name_of(AcceleratedLine) is None
    assert decision.name_of(generic(PlainKMeans)) is None
    names = {decision.name_of(cls) for cls in accelerated_classes().values()}
    assert "preprocessing.StandardScaler" in names


def test_a_small_call_is_weighed_once(table, monkeypatch):
    X, y = data(20)
    AcceleratedLine().fit(X, y)
    monkeypatch.setattr(decision, "_better_on_cpu", lambda *_: pytest.fail("it was weighed again"))
    model = AcceleratedLine().fit(X, y)
    assert model.coef_.shape == (2,)
    with pytest.raises(pytest.fail.Exception):
        model.fit(X[:10], y[:10])


@pytest.mark.parametrize(
    ("change", "weighed"),
    [
        ({}, False),
        ({"X": "longer"}, True),
        ({"X": "float32"}, True),
        ({"clusters": 5}, True),
        ({"table": Table()}, None),
    ],
)
def test_a_call_is_known_by_all_that_matters_to_its_time(table, monkeypatch, change, weighed):
    monkeypatch.setattr(decision, "WORK", {NAME: Work(letters={"k": ("clusters", 3.0)})})
    line, engines = AcceleratedLine(), [engine_of(AcceleratedLine)]
    X = data(20)[0]
    assert weigh(line, AcceleratedLine, "fit", X, engines).on_cpu
    if "clusters" in change:
        line.clusters = change["clusters"]
    X = {"longer": data(21)[0], "float32": X.astype(np.float32)}.get(change.get("X"), X)
    if "table" in change:
        monkeypatch.setattr(store, "_table", change["table"])
    known = decision.is_known_to_be_sooner(line, AcceleratedLine, "fit", X)
    assert known is (weighed is False)


def test_what_depends_on_the_process_is_not_remembered(table, monkeypatch):
    monkeypatch.setattr(startup, "_loaded", set())
    monkeypatch.setattr(startup, "_compiled", set())
    X = data(100_000)[0]
    line, engines = AcceleratedLine(), [engine_of(AcceleratedLine)]
    assert weigh(line, AcceleratedLine, "fit", X, engines).waits
    assert not table.sooner_on_cpu


def test_no_more_calls_are_remembered_than_there_is_a_use_for(table, monkeypatch):
    monkeypatch.setattr(decision, "_MOST_REMEMBERED", 3)
    line, engines = AcceleratedLine(), [engine_of(AcceleratedLine)]
    for rows in range(1, 10):
        weigh(line, AcceleratedLine, "fit", data(rows)[0], engines)
        assert len(table.sooner_on_cpu) <= 3


def test_a_row_after_another_is_predicted_by_scikit_learn(table):
    model = on_gpu(20)
    X = data(1)[0]
    answers = [model.predict(X) for _ in range(4)]
    assert engine_of(AcceleratedLine).counts["predict"] == 0
    assert all(np.array_equal(answer, answers[0]) for answer in answers)
    with accelsk.profile(quiet=True) as results:
        model.predict(X)
    assert results.method_calls["Line.predict"].cpu_calls == 1
    model.coef_ = model.coef_ * 2  # one truth: what it answers by is what it shows
    np.testing.assert_allclose(model.predict(X), 2 * answers[0])
    with accelsk.config_context(device="gpu"):
        assert ran_on_engine("predict", lambda: model.predict(X))


def test_a_known_small_fit_takes_the_place_of_one_on_the_device(table):
    X, y = data(20)
    AcceleratedLine().fit(X, y)
    model = on_gpu(20)
    model.fit(X, 2 * y)
    np.testing.assert_allclose(model.coef_, [2.0, 2.0])


def test_arguments_by_name_are_as_good_as_any(table, monkeypatch):
    X, y = data(20)
    AcceleratedLine().fit(X=X, y=y)
    monkeypatch.setattr(decision, "_better_on_cpu", lambda *_: pytest.fail("it was weighed again"))
    model = AcceleratedLine().fit(X, y=y, sample_weight=None)
    np.testing.assert_allclose(model.coef_, [1.0, 1.0])


def test_a_fault_in_an_estimate_costs_no_call(monkeypatch, data):
    def weigh(*_):
        raise TypeError("sparse array length is ambiguous")

    monkeypatch.setattr("accelsk.costs.weigh", weigh)
    with accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].gpu_calls == 1


def test_rows_of_a_model_are_counted_whatever_holds_them():
    for held in ({"X_fit_": sparse.csr_array(np.eye(7))}, {"shape_fit_": (7, 3)}):
        assert decision._fitted_rows(SimpleNamespace(**held), None) == 7
