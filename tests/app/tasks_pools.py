"""Handlers that use libraries with their own pools of processes."""

import concurrent.futures
import multiprocessing
import time
from functools import cache, partial

from atp import task_type

NUMBERS = [0, 1, 4, 9]


# A process that is spawned imports what it calls, and Django is not ready there.
square = partial(pow, exp=2)


def with_joblib(how):
    from joblib import Parallel, delayed

    return Parallel(n_jobs=2)(delayed(square)(number) for number in range(4))


def with_joblib_arrays(how):
    """Use arrays that are large enough for joblib to share them in memory."""
    import numpy
    from joblib import Parallel, delayed

    found = Parallel(n_jobs=2, max_nbytes=1000)(
        delayed(numpy.sum)(numpy.full(10_000, number)) for number in range(4)
    )
    return [int(each) // 10_000 * number for number, each in enumerate(found)]


def _new_executor(how):
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(how))


def _new_pool(how):
    return multiprocessing.get_context(how).Pool(2)


# What is never closed: one of each for all attempts, and what an attempt has left open.
_kept_executor, _kept_pool = cache(_new_executor), cache(_new_pool)
left = []


def with_executor(how):
    with _new_executor(how) as executor:
        return list(executor.map(square, range(4)))


def with_kept_executor(how):
    return list(_kept_executor(how).map(square, range(4)))


def with_left_executor(how):
    """Make a new executor in each attempt, and leave it open with work left."""
    left.append(executor := _new_executor(how))
    found = list(executor.map(square, range(4)))
    executor.submit(time.sleep, 300)
    return found


def with_pool(how):
    with _new_pool(how) as pool:
        return pool.map(square, range(4))


def with_kept_pool(how):
    return _kept_pool(how).map(square, range(4))


def with_left_pool(how):
    left.append(pool := _new_pool(how))
    found = pool.map(square, range(4))
    pool.apply_async(time.sleep, [300])
    return found


def with_shared_memory(how):
    """Create a block of shared memory and a semaphore that nobody removes."""
    from multiprocessing.shared_memory import SharedMemory

    left.append(SharedMemory(create=True, size=1000))
    left.append(multiprocessing.get_context(how).Semaphore())
    return NUMBERS


def with_dask(how):
    import dask

    delayed = [dask.delayed(square)(number) for number in range(4)]
    return list(dask.compute(*delayed, scheduler=how, num_workers=2))


@task_type("pools.use", timeout=120, max_restarts=0)
def use(context, *, library, how=None):
    found = globals()[f"with_{library}"](how)
    if found != NUMBERS:
        raise ValueError(found)
