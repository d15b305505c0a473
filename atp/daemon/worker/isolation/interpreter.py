"""The state of the Python interpreter that a handler may change."""

import gc
import sys
import threading
import tracemalloc
import warnings
from functools import partial
from operator import attrgetter

STREAMS = (partial(attrgetter("stdin", "stdout", "stderr"), sys),)
HOOKS = (
    partial(attrgetter("excepthook", "unraisablehook", "displayhook"), sys),
    partial(attrgetter("excepthook"), threading),
)
TRACING = (
    *(sys.gettrace, sys.getprofile, threading.gettrace, threading.getprofile),
    tracemalloc.is_tracing,
)
SWITCHES = (
    *(sys.getrecursionlimit, sys.getswitchinterval, sys.get_int_max_str_digits),
    *(gc.isenabled, gc.get_threshold, gc.get_debug),
)
# The list object of the filters, and its items.
FILTERS = (
    partial(attrgetter("filters", "showwarning"), warnings),
    lambda: warnings.filters[:],
)
PATHS = (partial(attrgetter("path"), sys), lambda: sys.path[:])


def put_back_streams(streams):
    sys.stdin, sys.stdout, sys.stderr = streams


def put_back_hooks(own, of_threads):
    sys.excepthook, sys.unraisablehook, sys.displayhook = own
    threading.excepthook = of_threads


def put_back_tracing(trace, profile, of_threads, profile_of_threads, is_tracing):
    sys.settrace(trace)
    sys.setprofile(profile)
    threading.settrace(of_threads)
    threading.setprofile(profile_of_threads)
    (tracemalloc.start if is_tracing else tracemalloc.stop)()


def put_back_switches(recursion, interval, digits, is_collecting, threshold, debug):
    sys.setrecursionlimit(recursion)
    sys.setswitchinterval(interval)
    sys.set_int_max_str_digits(digits)
    (gc.enable if is_collecting else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def put_back_filters(own, items):
    warnings.simplefilter("default")  # this makes Python's caches of the filters void
    warnings.filters, warnings.showwarning = own
    warnings.filters[:] = items


def put_back_path(path, items):
    sys.path = path
    sys.path[:] = items
