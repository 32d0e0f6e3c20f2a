"""Which CUDA errors leave the context unusable."""

from __future__ import annotations

__all__ = ["poisons_context"]

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
    "invalidaddressspace",
    "invalidpc",
    "hardwarestackerror",
    "device-side assert",
    "uncorrectable ecc",
    "contextisdestroyed",
    "context is destroyed",
)


def poisons_context(error: BaseException) -> bool:
    """Whether `error` means that CUDA cannot be used any more in this process."""
    text = f"{type(error).__name__}: {error}".lower()
    return "cuda" in text and any(name in text for name in _STICKY)
