"""Fingerprints: failures with the same cause get the same one. The worker computes it."""

import sysconfig
from collections import deque
from functools import lru_cache
from pathlib import Path

from ...authoring import logs
from ...exceptions import dotted_path
from ...operations.registry import registry
from ...store import failures

# The number of innermost frames, and of exceptions in the chain of causes, that count.
FRAMES, CAUSES = 10, 10
# The number of characters of the message that count.
LONGEST = 10_000

_OWN = str(Path(__file__).resolve().parents[2]) + "/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")
# Before Python 3.12 comprehensions had frames of their own.
_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


def failed(type, error):
    """Return the cause of a failure of a Type, as :class:`~atp.store.values.Failed`.

    If the exception has a ``fingerprint`` (as Fatal may), that alone counts. Otherwise the
    classes of the exception and its causes count, and the application's functions in their
    tracebacks; without such functions, the message. Line numbers do not count, so that code
    above may change.
    """
    exception = dotted_path(error)
    text = (logs.exception_text(error) or "")[:LONGEST]
    title = f"{logs.exception_name(error)}: {text}".removesuffix(": ")
    given = logs.exception_attribute(error, "fingerprint")
    given = str.__str__(given) if isinstance(given, str) else ""
    if given:
        return failures.failed(type, ("given", given), exception=exception, title=title)
    causes = list(_causes(error))
    frames = _frames(causes, _package(type))
    about = frames or [failures.plain(text)]
    parts = ("raised", *map(dotted_path, causes), "at", *about)
    return failures.failed(type, parts, exception=exception, title=title)


def _causes(error):
    """Yield an exception and its chain of causes."""
    seen = set()
    while error is not None and id(error) not in seen and len(seen) < CAUSES:
        seen.add(id(error))
        yield error
        error = logs.exception_cause(error)


def _package(type):
    """Return the top package of a Type's handler, which belongs to the application; "" if none."""
    module = registry.get(type).handler_path if type in registry else ""
    name = module.partition(".")[0]
    return "" if name == "atp" else name


def _frames(causes, package):
    """Return the names of the application's innermost functions in the tracebacks."""
    found = deque(maxlen=FRAMES)
    for error in causes:
        traceback = logs.exception_trace(error)
        while traceback is not None:
            frame, traceback = traceback.tb_frame, traceback.tb_next
            name = frame.f_globals.get("__name__")
            name = name if type(name) is str else ""
            is_own = package and name.partition(".")[0] == package
            if is_own or _is_of_application(frame.f_code.co_filename):
                function = frame.f_code.co_qualname
                if not function.endswith(_INLINED):
                    found.append(f"{name}.{function}")
    return list(found)


@lru_cache(maxsize=4096)
def _is_of_application(filename):
    if filename.startswith("<"):
        return False
    if any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith((_OWN, *_STANDARD))
