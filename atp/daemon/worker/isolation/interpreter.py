"""The state of the Python interpreter that a handler may change."""

import gc
import sys
import threading
import tracemalloc
import warnings


def put_back_streams(before):
    sys.stdin, sys.stdout, sys.stderr = before


def hooks():
    return sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook


def put_back_hooks(before):
    sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook = before


def tracing():
    own = sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()
    return *own, tracemalloc.is_tracing()


def put_back_tracing(before):
    trace, profile, of_threads, profile_of_threads, is_tracing = before
    sys.settrace(trace)
    sys.setprofile(profile)
    threading.settrace(of_threads)
    threading.setprofile(profile_of_threads)
    (tracemalloc.start if is_tracing else tracemalloc.stop)()


def switches():
    return (
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        sys.get_int_max_str_digits(),
        gc.isenabled(),
        gc.get_threshold(),
        gc.get_debug(),
    )


def put_back_switches(before):
    recursion, interval, digits, is_collecting, threshold, debug = before
    sys.setrecursionlimit(recursion)
    sys.setswitchinterval(interval)
    sys.set_int_max_str_digits(digits)
    (gc.enable if is_collecting else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def filters():
    return warnings.filters, list(warnings.filters), warnings.showwarning


def put_back_filters(before):
    warnings.simplefilter("default")  # what Python remembers of the filters is void
    warnings.filters, copy, warnings.showwarning = before
    warnings.filters[:] = copy


def paths():
    return sys.path, list(sys.path)


def put_back_path(before):
    sys.path, copy = before
    sys.path[:] = copy
