"""Why a peer has no figure."""

import re

_LAST_LINES, _LONGEST = 3, 300
# What tells most: how pip and a traceback end, before what may come after it.
_TELLING = re.compile(
    r"^ERROR: .*|^[a-z_][\w.]*\.[A-Z]\w+(: .*)?$|^[A-Z]\w*(Error|Exception)(: .*)?$"
)


class Failure(Exception):
    """A peer was not installed or does not run; the message says why, with its last words."""

    def __init__(self, sentence, output=""):
        super().__init__(": ".join(filter(None, [sentence, _last_words(output)])))


def _last_words(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.match(line)]
    return (telling[-1] if telling else " | ".join(lines[-_LAST_LINES:]))[:_LONGEST]
