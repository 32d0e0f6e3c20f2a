"""Device memory: managed memory, freeing pools, and what counts as running out."""

from __future__ import annotations

import gc
import logging
import sys

__all__ = ["enable_managed_memory", "free_pools", "is_out_of_memory"]

logger = logging.getLogger("accelsk")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that device memory ran out.

    RMM raises ``MemoryError`` (``std::bad_alloc``), CuPy a subclass of it, cuBLAS, cuSOLVER and
    Thrust errors of their own.
    """
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out_of_memory" in text or "bad_alloc" in text


def free_pools() -> None:
    """Give the device memory that CuPy keeps in its pools back."""
    gc.collect()
    cupy = sys.modules.get("cupy")
    for name in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        if (pool := getattr(cupy, name, None)) is not None:  # CuPy may be half imported
            pool().free_all_blocks()


def enable_managed_memory() -> bool:
    """Let RMM allocate managed memory, so that data may be larger than the device.

    Returns
    -------
    enabled : bool
        False, with the reason in the log, where the platform lacks concurrent managed access (as
        WSL2 does) or where RMM is configured already.
    """
    import cupy
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    device = cupy.cuda.Device()
    if not device.attributes["ConcurrentManagedAccess"]:
        logger.debug("No managed memory: the platform lacks concurrent managed access")
        return False
    resource = rmm.mr.get_current_device_resource()
    if type(resource) is not rmm.mr.CudaMemoryResource:
        logger.debug("No managed memory: RMM is already configured with %r", resource)
        return False
    rmm.mr.set_current_device_resource(
        rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource())
    )
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    logger.debug("Managed memory is on")
    return True
