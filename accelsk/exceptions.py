"""`sklearn.exceptions`, and what accelsk itself raises and warns."""

from __future__ import annotations

from collections.abc import Sequence

from sklearn.exceptions import NotFittedError as _NotFittedError

from accelsk._mirror import mirror

_originals, __getattr__, __dir__ = mirror(__name__)

__all__ = [
    *_originals,
    "FallbackError",
    "FallbackWarning",
    "Invalid",
    "LostModelError",
    "Refusal",
    "Sooner",
]


class FallbackWarning(UserWarning):
    """A call ran in scikit-learn; given with ``config_context(on_fallback="warn")``."""


class FallbackError(RuntimeError):
    """A call would run in scikit-learn; raised with ``config_context(on_fallback="raise")``.

    Parameters
    ----------
    call : str
        The qualified name of the call, such as ``"Ridge.fit"``.
    reasons : sequence of str
        What keeps the call off the GPU.

    Attributes
    ----------
    call : str
    reasons : tuple of str
    """

    def __init__(self, call: str, reasons: Sequence[str]) -> None:
        super().__init__(call, tuple(reasons))
        self.call = call
        self.reasons = tuple(reasons)

    def __str__(self) -> str:
        return f"{self.call} cannot run on the GPU: {'; '.join(self.reasons)}"


class LostModelError(_NotFittedError):
    """The fitted attributes of an estimator were on the GPU, which a CUDA error has taken away.

    The estimator is no longer fitted, which is what scikit-learn's error of that name stands for:
    ``hasattr(model, "coef_")`` is False, and ``fit`` mends it. It is raised as well where a copy
    or a pickle would be one of an estimator without its attributes.
    """


class Invalid(str):
    """A reason that scikit-learn is expected to have an error of its own for.

    The call then goes to scikit-learn whatever ``on_fallback`` says, so that the user sees that
    error.
    """

    __slots__ = ()


class Sooner(str):
    """A reason to leave a call on the CPU that is no fault: it is expected to end sooner there.

    ``on_fallback`` has no say in it.
    """

    __slots__ = ()


class Refusal(Exception):  # noqa: N818 - not an error: the call goes to scikit-learn
    """An engine hands a call on, having seen the data or a result.

    Parameters
    ----------
    reason : str
        Why, as it stands in the profile; an `Invalid` where scikit-learn will raise.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
