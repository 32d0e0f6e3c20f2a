"""Data that go up once and are cut there: the rows of a search, of each of its folds.

scikit-learn's own search and cross-validation run with a `Resident` in the place of X and y. They
index it by the rows of a fold, which costs nothing. An engine asks for the rows on the device,
where they are cut; whatever else asks gets them on the host, cut from what the caller gave, frame
or array. What was computed of some rows, such as their moments, is kept for the length of the
search, by the identity of the data and of the row numbers.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np

from accelsk.device.memory import gives_back

__all__ = ["Resident", "Rows", "Session", "Source", "remembered"]


#: What row numbers may take, on the host and again on the device.
_MOST_INDEX_BYTES = 1 << 29


class Rows:
    """Row numbers, on the host and once on the device.

    Attributes
    ----------
    indices : ndarray of int
    parts : tuple of Rows
        Others that these are made up of, where that is known.
    """

    def __init__(self, indices: np.ndarray) -> None:
        self.indices = indices
        self.parts: tuple[Rows, ...] = ()

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def key(self) -> Any:
        """What stands for the rows on the device: a slice where they follow each other."""
        from accelsk.device.transfer import to_device

        first = int(self.indices[0]) if len(self.indices) else 0
        if np.array_equal(self.indices, np.arange(first, first + len(self.indices))):
            return slice(first, first + len(self.indices))
        return to_device(self.indices)


class Session:
    """What the calls of one search share.

    Parameters
    ----------
    repeats : bool, default=True
        Whether calls come again, so that what they give is worth keeping.
    """

    #: Every session there is, by identity.
    live: ClassVar = weakref.WeakValueDictionary[int, "Session"]()

    def __init__(self, *, repeats: bool = True) -> None:
        self.repeats = repeats
        self._by_identity: dict[int, tuple[np.ndarray, Rows]] = {}
        self._by_content: dict[tuple, Rows] = {}
        self._kept: dict[tuple, Any] = {}
        self._n_bytes = 0
        self._n_index_bytes = 0
        #: Sources with data on the host, by identity.
        self.sources = weakref.WeakValueDictionary[int, "Source"]()
        self.live[id(self)] = self

    def give_back(self) -> bool:
        """Forget what is on the device and can be made or sent again; return whether there was any.

        Whoever computes with it has references of its own.
        """
        copies = [vars(rows) for rows in list(self._by_content.values())]
        copies += [vars(one) for ref in self.sources.valuerefs() if (one := ref()) is not None]
        # each has its copy on the device under a name that the other has not
        given_up = [c.pop(name, None) for c in copies for name in ("key", "on_device")]
        there = bool(self._kept) or any(one is not None for one in given_up)
        self._kept.clear()
        self._n_bytes = 0
        return there

    def rows(self, indices: np.ndarray) -> Rows:
        """Return the one `Rows` that stands for these row numbers."""
        known = self._by_identity.get(id(indices))
        if known is None:
            plain = np.ascontiguousarray(indices)
            content = (len(plain), plain.dtype.str, zlib.crc32(plain.data))
            rows = self._by_content.get(content)
            if rows is None or not np.array_equal(rows.indices, indices):
                self._make_room(indices.nbytes)
                rows = self._by_content[content] = Rows(indices)
            # the array is kept, so that no other gets its identity
            known = self._by_identity[id(indices)] = (indices, rows)
        return known[1]

    def _make_room(self, n_bytes: int) -> None:
        """Forget everything where row numbers take too much: those of many permutations."""
        self._n_index_bytes += n_bytes
        if self._n_index_bytes > _MOST_INDEX_BYTES:
            self._n_index_bytes, self._n_bytes = n_bytes, 0
            for known in (self._by_identity, self._by_content, self._kept):
                known.clear()

    def learn(self, splits: Iterable[tuple[Any, Any]], n_rows: int) -> tuple[Rows, ...]:
        """Take note of folds: where each is left out of all once, the others make up the rest.

        Returns
        -------
        folds : tuple of Rows
            Which make up all rows; empty where the folds do not.
        """
        pairs = [(np.asarray(train), np.asarray(test)) for train, test in splits]
        counts = np.zeros(n_rows, np.int64)
        for train, test in pairs:
            if len(train) + len(test) != n_rows or train.dtype.kind not in "iu":
                return ()
            held_out = np.zeros(n_rows, dtype=bool)
            held_out[test] = True
            counts += held_out
            held_out[train] = True
            if not held_out.all():
                return ()
        if not (counts == 1).all():
            return ()
        folds = tuple(self.rows(test) for _, test in pairs)
        for number, (train, _) in enumerate(pairs):
            self.rows(train).parts = folds[:number] + folds[number + 1 :]
        return folds

    def look_up(self, key: tuple) -> Any:
        """Return what is kept under `key`, None where there is nothing."""
        return self._kept.get(key)

    def keep(self, key: tuple, value: Any, n_bytes: int = 0, limit: int | None = None) -> bool:
        """Keep `value`, unless what is kept would take more than `limit` bytes of the device."""
        if limit is not None and self._n_bytes + n_bytes > limit:
            return False
        self._n_bytes += n_bytes
        self._kept[key] = value
        return True

    def kept(self, key: tuple, make: Callable[[], Any]) -> Any:
        """Return what is kept under `key`, made the first time."""
        value = self._kept.get(key)
        if value is None:
            value = self._kept[key] = make()
        return value


@gives_back
def _data_of_searches(_: object) -> list[str]:
    sessions = (reference() for reference in Session.live.valuerefs())
    # all of them, so no shortcut
    given_up = [session.give_back() for session in sessions if session is not None]
    return ["data of a search or pipeline"] * sum(given_up)


class Source:
    """Data as the caller gave them, and once on the device.

    Parameters
    ----------
    argument : Argument
        What is known of them.
    session : Session

    Attributes
    ----------
    folds : tuple of Rows
        Which make up all rows, where that is known.
    """

    def __init__(self, argument: Any, session: Session) -> None:
        self.argument = argument
        self.session = session
        self.folds: tuple[Rows, ...] = ()
        if argument.kind != "cupy":
            session.sources[id(self)] = self

    @cached_property
    def on_device(self) -> Any:
        """All rows on the device."""
        from accelsk.device.transfer import to_device

        return to_device(self.argument.array)

    @cached_property
    def feature_names(self) -> np.ndarray | None:
        """The column names of a frame."""
        return self.argument.feature_names

    @property
    def host(self) -> Any:
        """All rows on the host, in the caller's container."""
        from accelsk.device.transfer import to_host

        return to_host(self.argument.value)

    @cached_property
    def heading(self) -> Any:
        """A frame without rows, with the columns of the caller's; other data as they are."""
        value = self.argument.value
        return value[:0] if self.argument.kind == "frame" else value


class Resident:
    """Some rows of a `Source`: shape and dtype at once, elements when they are asked for.

    Parameters
    ----------
    source : Source
    rows : Rows, default=None
        None means all.
    answers_on_host : bool, default=False
        Whether what is computed of them goes to the host.
    """

    __array_ufunc__ = None  # nothing is computed with it, but of its rows

    def __init__(
        self, source: Source, rows: Rows | None = None, *, answers_on_host: bool = False
    ) -> None:
        self.source = source
        self.rows = rows
        self.answers_on_host = answers_on_host
        whole = source.argument
        self.dtype = whole.dtype
        self.shape = whole.shape if rows is None else (len(rows), *whole.shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def heading(self) -> Any:
        return self.source.heading

    @property
    def feature_names(self) -> np.ndarray | None:
        return self.source.feature_names

    @cached_property
    def on_device(self) -> Any:
        """The rows on the device."""
        whole = self.source.on_device
        return whole if self.rows is None else whole[self.rows.key]

    def get(self) -> Any:
        """Return the rows on the host as scikit-learn would cut them."""
        from accelsk._sklearn import safe_indexing

        host = self.source.host
        return host if self.rows is None else safe_indexing(host, self.rows.indices)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        # what leaves the process, or is copied, is what scikit-learn would have
        return _itself, (self.get(),)

    def __len__(self) -> int:
        return self.shape[0]

    def __mul__(self, weight: Any) -> Any:
        # a union of scikit-learn's weighs what it passes through
        return self.on_device * weight

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self.get(), dtype)
        return array.copy() if copy else array

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]
        if isinstance(key, list):
            key = np.asarray(key)
        if isinstance(key, slice):
            key = np.arange(*key.indices(len(self)))
        if not (isinstance(key, np.ndarray) and key.ndim == 1 and key.dtype.kind in "iub"):
            return np.asarray(self)[key]
        if key.dtype.kind == "b":
            key = np.flatnonzero(key)
        indices = key if self.rows is None else self.rows.indices[key]
        rows = self.source.session.rows(indices)
        return Resident(self.source, rows, answers_on_host=self.answers_on_host)


def _itself(value: Any) -> Any:
    return value


def remembered(
    name: str,
    arrays: Sequence[Any],
    make: Callable[..., Any],
    join: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Return what `make` computes of arrays: once, where they are the same rows of a search.

    Parameters
    ----------
    name : str
        What is computed; it goes into the key with the data and the rows.
    arrays : sequence of array or None
        As a call received them. Where they are `Resident`, of the same rows, the result is kept.
    make : callable
        Gets `arrays`, or the same of other rows.
    join : callable, default=None
        From the results for two sets of rows to that for both. Where the rows are all but one
        fold, each fold is computed once, and the others are joined.

    Returns
    -------
    result : object
        Not to be changed in place.
    """
    given = [array for array in arrays if array is not None]
    if not all(isinstance(array, Resident) for array in given):
        return make(*arrays)
    rows, session = given[0].rows, given[0].source.session
    if any(array.rows is not rows or array.source.session is not session for array in given):
        return make(*arrays)

    def of(part: Rows | None) -> Any:
        cut = [None if array is None else Resident(array.source, part) for array in arrays]
        key = (name, part, *(None if array is None else array.source for array in arrays))
        return session.kept(key, lambda: make(*cut))

    parts = given[0].source.folds if rows is None else rows.parts
    if join is None or not parts:
        return of(rows)
    key = (name, rows, *(None if array is None else array.source for array in arrays))
    return session.kept(key, lambda: reduce(join, map(of, parts)))
