"""What ran where: events, the profile that collects them, and its report."""

from accelsk.profiling.profile import MethodStats, ProfileResults, profile

__all__ = ["MethodStats", "ProfileResults", "profile"]
