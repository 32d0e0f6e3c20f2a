"""The releases of other packages that accelsk is tested with."""

from __future__ import annotations

import importlib.metadata
import logging

from packaging.version import Version

__all__ = ["TESTED", "check"]

logger = logging.getLogger("accelsk")

#: The first and the last tested release. The last one stands for all that begin with it.
TESTED = {
    "scikit-learn": ("1.6", "1.9"),
    "umap-learn": ("0.5.7", "0.5.12"),
    "hdbscan": ("0.8.39", "0.8.44"),
    "cuml": ("26", "26"),
}

_warned: set[str] = set()


def check(package: str, version: str | None = None) -> None:
    """Warn in the log, once, where the version of a package has not been tested.

    Parameters
    ----------
    package : str
        A key of `TESTED`.
    version : str, default=None
        None asks the installed distribution.
    """
    version = version or importlib.metadata.version(package)
    if package in _warned or _tested(package, version):
        return
    _warned.add(package)
    tested = " to ".join(dict.fromkeys(TESTED[package]))
    logger.warning("accelsk is tested with %s %s, not with %s", package, tested, version)


def _tested(package: str, version: str) -> bool:
    first, last = (Version(end).release for end in TESTED[package])
    release = Version(version).release
    return first <= release and release[: len(last)] <= last
