"""Fingerprints: what failures of one cause have in common, seen where the exception is."""

import sysconfig
from collections import deque
from functools import lru_cache
from pathlib import Path

from ...authoring.raised import facts
from ...store import failures
from ...verbs.registry import registry
from ...words.raised import path_of

# The innermost frames count.
FRAMES, CAUSES = 10, 10
# So many characters of the message do.
LONGEST = 10_000

_OWN = str(Path(__file__).resolve().parents[2]) + "/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")
# Until Python 3.12 these had frames of their own.
_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


def failed(type, error):
    """Return the cause of a failure of a Type, as :class:`~atp.store.values.Failed`.

    The exception and its causes by class, and the functions of the application through
    which they came. Lines are left out, so that code above may change. Where there are no such
    functions, the message; and before all that the ``fingerprint`` of Fatal.
    """
    exception = path_of(error)
    text = (facts.text(error) or "")[:LONGEST]
    title = f"{facts.name(error)}: {text}".removesuffix(": ")
    given = facts.attribute(error, "fingerprint")
    given = str.__str__(given) if isinstance(given, str) else ""
    if given:
        return failures.failed(type, ("given", given), exception=exception, title=title)
    causes = list(_causes(error))
    frames = _frames(causes, _package(type))
    about = frames or [failures.plain(text)]
    parts = ("raised", *map(path_of, causes), "at", *about)
    return failures.failed(type, parts, exception=exception, title=title)


def _causes(error):
    """Yield an exception and those that it was raised from."""
    seen = set()
    while error is not None and id(error) not in seen and len(seen) < CAUSES:
        seen.add(id(error))
        yield error
        error = facts.cause(error)


def _package(type):
    """Return the package of a Type's handler: it is the application's, wherever it lies."""
    module = registry.get(type).handler_path if type in registry else ""
    name = module.partition(".")[0]
    return "" if name == "atp" else name


def _frames(causes, package):
    """Return the names of the innermost functions of the application."""
    found = deque(maxlen=FRAMES)
    for error in causes:
        traceback = facts.trace(error)
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
