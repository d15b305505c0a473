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


def with_executor(how):
    context = multiprocessing.get_context(how)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        return list(executor.map(square, range(4)))


@cache
def _executor(how):
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(how))


def with_kept_executor(how):
    """Use an executor of the module that is never closed."""
    return list(_executor(how).map(square, range(4)))


def with_left_executor(how):
    """Make a new executor in each attempt, and leave it open with work left."""
    executor = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(how))
    found = list(executor.map(square, range(4)))
    left.append(executor)
    executor.submit(time.sleep, 300)
    return found


left = []


def with_pool(how):
    with multiprocessing.get_context(how).Pool(2) as pool:
        return pool.map(square, range(4))


@cache
def _pool(how):
    return multiprocessing.get_context(how).Pool(2)


def with_kept_pool(how):
    return _pool(how).map(square, range(4))


def with_left_pool(how):
    pool = multiprocessing.get_context(how).Pool(2)
    left.append(pool)
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
