"""Arrays on the host in pieces, each with its place on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Piece", "pieces_of", "pieces_of_columns"]


class Piece(NamedTuple):
    """A part of an array on the host, and where it stands on the device.

    Attributes
    ----------
    host : ndarray or list of ndarray
        Any layout. What it holds is, or is to be, in C order on the device; arrays of one
        dimension in a list one after the other. Uploads alone take lists.
    address : int
        On the device.
    """

    host: Any
    address: int


def pieces_of(host: np.ndarray, address: int, itemsize: int, size: int) -> Iterator[Piece]:
    """Yield an array in pieces.

    Parameters
    ----------
    host : ndarray
        Its axes in the order of its memory.
    address : int
        Of its start on the device.
    itemsize : int
        Bytes of an element on the device, no more than on the host.
    size : int
        Bytes of a piece on the host.
    """
    if host.nbytes <= size:
        yield Piece(host, address)
    elif host.flags.c_contiguous:
        flat = host.reshape(-1)
        step = size // host.itemsize
        for start in range(0, len(flat), step):
            yield Piece(flat[start : start + step], address + start * itemsize)
    elif step := size // (host.nbytes // len(host)):
        row = host.size // len(host) * itemsize
        for start in range(0, len(host), step):
            yield Piece(host[start : start + step], address + start * row)
    else:
        for index, part in enumerate(host):
            yield from pieces_of(part, address + index * part.size * itemsize, itemsize, size)


def pieces_of_columns(
    columns: Sequence[np.ndarray], address: int, itemsize: int, size: int
) -> Iterator[Piece]:
    """Yield columns of one length, which are to follow each other, several to a piece."""
    column_bytes = itemsize * len(columns[0])
    together = size // max(column_bytes, 1)
    if together < 2:
        for place, column in enumerate(columns):
            yield from pieces_of(column, address + place * column_bytes, itemsize, size)
        return
    for place in range(0, len(columns), together):
        yield Piece(list(columns[place : place + together]), address + place * column_bytes)
