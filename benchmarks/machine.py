"""What a result was measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from typing import Any

from accelsk.device import probe

_PACKAGES = (
    "accelsk",
    "scikit-learn",
    "numpy",
    "scipy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "cuml-cu12",
    "cuml-cu13",
    "umap-learn",
    "hdbscan",
)


def describe_machine() -> dict[str, Any]:
    """Return the date, the processor, the GPU and the versions that matter to a result."""
    gpu = probe.gpu()
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "gpu": None if gpu is None else gpu.name,
        "driver": None if gpu is None else ".".join(map(str, gpu.driver)),
        "versions": versions,
    }
