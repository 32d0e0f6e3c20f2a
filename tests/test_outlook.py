"""What is measured next of a class: by what is known of it so far."""

from __future__ import annotations

from typing import Any

import pytest
from engine import AcceleratedLine

from accelsk.cluster import KMeans
from accelsk.costs import budget
from accelsk.costs.budget import Budget, Growth
from accelsk.costs.model import CPU
from accelsk.costs.outlook import Outlook
from accelsk.costs.points import GRID, Point, fitting
from accelsk.costs.work import WORK, Work


def at(rows: int, columns: int = 8, cls: Any = AcceleratedLine, index: int = 0) -> Point:
    return Point(cls, rows, columns, index)


@pytest.fixture
def clock(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(budget, "perf_counter", lambda: now[0])
    return now


# The time


def test_a_call_may_take_a_part_of_the_whole_time_even_within_a_part(clock):
    whole = Budget(100.0)
    most = budget._PART * 100
    with whole.part(0.1):
        assert whole.left == pytest.approx(10)
        assert whole.allows(0.99 * most)
        assert not whole.allows(1.01 * most)
        clock[0] += 11
        assert not whole.allows(1e-6)
    assert whole.left == pytest.approx(89)


def test_a_method_may_take_a_part_of_the_whole_time_on_a_side(clock):
    whole = Budget(100.0)
    most = budget._CURVE * 100
    assert whole.allows(0.5, spent=most - 0.51)
    assert not whole.allows(0.5, spent=most - 0.49)


def test_what_nobody_knows_may_be_tried_while_there_is_time(clock):
    whole = Budget(1.0)
    assert whole.allows(None)
    clock[0] += 1.0
    assert not whole.allows(None)


# How calls grow


def test_a_call_is_told_by_the_nearest_size():
    growth = Growth(most=1)
    growth.add(at(100), 1e-3)
    growth.add(at(100_000), 1.0)
    assert growth.at(at(100_000)) == pytest.approx(1.0)
    assert growth.at(at(100)) == pytest.approx(1e-3)
    assert 1e-3 < growth.at(at(1_000)) < 1e-2 * 2


def test_what_is_measured_once_is_taken_to_grow_and_perhaps_not_to():
    growth = Growth(most=2)
    growth.add(at(100), 1e-3)
    assert growth.at(at(10_000)) == pytest.approx(1e-3 * 100**budget._POWER)
    assert growth.at_least(at(10_000)) == pytest.approx(1e-3)


@pytest.mark.parametrize(("most", "times"), [(1, 10), (2, 100)])
def test_no_call_grows_faster_than_its_terms_say(most, times):
    growth = Growth(most=most)
    growth.add(at(100), 1e-4)
    growth.add(at(1_000), 1e-2)  # with the square of the rows
    assert growth.at(at(10_000)) == pytest.approx(1e-2 * times)
    assert growth.at_least(at(10_000)) == pytest.approx(1.0)


def test_what_grows_fast_in_some_columns_may_in_others():
    growth = Growth(most=2)
    growth.add(at(100, 8), 1e-4)
    growth.add(at(1_000, 8), 1e-2)
    growth.add(at(100, 256), 1e-3)
    assert growth.at(at(200, 256)) == pytest.approx(1e-3 * 2**2)


def test_more_columns_take_longer_and_so_do_more_clusters():
    growth = Growth(most=1)
    growth.add(at(1_000, 8, KMeans, index=0), 1e-3)
    assert growth.at(at(1_000, 256, KMeans, index=0)) > 5e-3
    assert at(1_000, 8, KMeans, index=2).things == 48
    assert growth.at(at(1_000, 8, KMeans, index=2)) == pytest.approx(6e-3)


# What is clear


def outlook(times: dict[int, tuple[float, float]]) -> Outlook:
    found = Outlook(Work())
    for rows, (cpu, gpu) in times.items():
        found.add("fit", CPU, at(rows), cpu)
        found.add("fit", "gpu", at(rows), gpu)
    return found


@pytest.mark.parametrize(
    ("small", "large", "clear"),
    [
        ((1.0, 5.0), (2.0, 5.0), True),
        ((5.0, 1.0), (9.0, 1.0), True),
        ((1.0, 5.0), (9.0, 1.0), False),
        ((1.0, 1.2), (1.1, 1.3), False),  # too near to tell
    ],
)
def test_it_is_clear_between_sizes_where_the_same_side_leads_by_far(small, large, clear):
    assert outlook({100: small, 10_000: large}).is_clear("fit", at(1_000)) is clear


@pytest.mark.parametrize("rows", [10, 100, 10_000, 100_000])
def test_nothing_is_clear_beyond_what_was_measured(rows):
    found = outlook({100: (1.0, 5.0), 10_000: (1.0, 5.0)})
    assert not found.is_clear("fit", at(rows))
    assert not found.is_clear("fit", at(1_000, 256))
    assert not found.is_clear("predict", at(1_000))


def test_a_class_is_settled_where_all_its_methods_are():
    found = outlook({100: (1.0, 5.0), 10_000: (1.0, 5.0)})
    assert found.is_settled(["fit"], at(1_000))
    assert not found.is_settled(["fit", "predict"], at(1_000))


def test_one_side_alone_makes_nothing_clear():
    found = Outlook(Work())
    for rows in (100, 10_000):
        found.add("fit", "gpu", at(rows), 1e-3)
    assert not found.is_clear("fit", at(1_000))
    assert not found.is_hopeless("fit", at(100_000))


def test_the_cpu_is_hopeless_where_it_is_far_behind_for_certain():
    found = outlook({100: (0.01, 0.01), 1_000: (0.1, 0.01)})
    assert found.is_hopeless("fit", at(100_000))  # 10 s, not above 0.4 s
    assert not outlook({100: (0.01, 0.01), 1_000: (0.03, 0.01)}).is_hopeless("fit", at(2_000))
    once = outlook({100: (0.1, 0.05)})
    assert not once.is_hopeless("fit", at(100_000))  # it may be constant


def test_a_quick_side_is_never_hopeless():
    found = outlook({100: (1e-3, 1e-6), 1_000: (1e-3, 1e-6)})
    assert not found.is_hopeless("fit", at(10_000))


def test_pairs_of_rows_are_expected_where_the_terms_have_them():
    found = Outlook(WORK["svm.SVC"])
    for method in ("fit", "predict"):
        found.add(method, CPU, at(100), 1e-4)
        found.add(method, CPU, at(1_000), 1e-2)
        assert found.expected(method, CPU, at(10_000)) == pytest.approx(1.0)
    assert found.expected("fit", "gpu", at(100)) is None


# Sizes


def test_sizes_that_do_not_fit_are_left_out():
    assert fitting(GRID, 1e15) == [*GRID]
    assert fitting(GRID, 0.0) == []
    some = fitting(GRID, 64 * 10**6)
    assert max(n * d for n, d in some) <= 10**6
    assert some == [size for size in GRID if size in some]
