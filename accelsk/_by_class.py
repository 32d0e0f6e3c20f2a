"""What the engines for classifiers from moments have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from accelsk._projections import with_arguments
from accelsk.engines.base import Call
from accelsk.engines.moments import Block, blocks, mapped
from accelsk.engines.on_device import labelled

__all__ = ["coded_blocks", "most_probable"]


def coded_blocks(call: Call, codes: Any) -> Iterator[Block]:
    """Yield the rows of the call with the codes of their classes and ``sample_weight``.

    The codes, which are on the device, have one dimension.
    """
    for block in blocks(with_arguments(call, y=codes)):
        yield block._replace(Y=block.Y[:, 0])


def most_probable(call: Call, scores: Callable[[Any], Any]) -> Any:
    """Return the label with the highest score for each row, streamed.

    Parameters
    ----------
    call : Call
    scores : callable
        From rows on the device to an array of shape (n_rows, n_classes), or of shape (n_rows,) in
        favour of the second of two classes.
    """

    def positions(X: Any) -> Any:
        found = scores(X)
        if found.ndim == 1:
            return (found > 0) + 0.0 * found  # a score that is not finite shows
        return found.argmax(axis=1) + 0.0 * found.max(axis=1)

    return labelled(call, mapped(call, positions).astype(np.int64))
