"""Which CUDA errors leave the context unusable, and what such an error costs."""

from __future__ import annotations

import sys

from accelsk.device import probe

__all__ = ["leave_unmended", "loses_gpu", "poisons_context", "unmended"]

#: Errors after which every further CUDA call of the process fails (CUDA Runtime API, error
#: handling: "the process must be terminated and relaunched").
_STICKY = (
    "illegaladdress",
    "illegal memory access",
    "illegal address",
    "misalignedaddress",
    "misaligned address",
    "illegalinstruction",
    "illegal instruction",
    "launchfailure",
    "launch failure",
    "unspecified launch failure",
    "launchtimeout",
    "launch timed out",
    "invalidaddressspace",
    "invalidpc",
    "hardwarestackerror",
    "device-side assert",
    "uncorrectable ecc",
    "contextisdestroyed",
    "context is destroyed",
)

#: Whose errors may be what is left of one of those: libraries report a failure of their own.
_LIBRARIES = ("cuda", "cublas", "cusolver", "cusparse", "curand", "cufft", "thrust", "raft", "rmm")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".lower()


def poisons_context(error: BaseException) -> bool:
    """Whether `error` says that CUDA cannot be used any more in this process."""
    text = _text(error)
    return "cuda" in text and any(name in text for name in _STICKY)


def loses_gpu(error: BaseException) -> bool:
    """Whether `error` costs the process its GPU, which is out of use from then on.

    Where the error does not tell, but comes from a library of CUDA's, the device is asked.
    """
    if poisons_context(error) or _does_not_answer(error):
        probe.disable(f"a CUDA error made it unusable ({error})")
        return True
    return False


def _does_not_answer(error: BaseException) -> bool:
    runtime = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "runtime", None)
    synchronize = getattr(runtime, "deviceSynchronize", None)
    if synchronize is None or not any(name in _text(error) for name in _LIBRARIES):
        return False
    if probe.unusable() is not None:  # be it in a forked process, which is not to touch CUDA
        return False
    for _ in range(2):  # an error that stays is told each time, any other once
        try:
            synchronize()
        except Exception:
            continue
        return False
    return True


_unmended = 0


def leave_unmended() -> None:
    """Take note that a fault of the GPU has cost somebody a result or a fitted model."""
    global _unmended
    _unmended += 1


def unmended() -> int:
    """Return how often that has happened in this process."""
    return _unmended
