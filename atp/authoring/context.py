"""Context: the first argument of a handler, through which it talks to the daemon."""

from __future__ import annotations

import logging
import math
import mimetypes
import os
import posixpath
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from django.core.files.storage import storages

from ..conf import settings
from ..exceptions import Interrupted, TooLarge
from ..payload.sensitive import hidden
from ..store import filelock
from ..words import ownership
from ..words.messages import Messages
from .growing import Grower, Growing
from .halting import Halting
from .log_text import clean, shorten
from .output import check_content_type
from .results import Results
from .steps import Keeper, Stepping
from .storage import open_file, size_of, storage_path, store_file

if TYPE_CHECKING:
    from ..store.values import Claimed

logger = logging.getLogger("atp.worker")

# The beginning of the names of the folders in SCRATCH_DIR.
SCRATCH_PREFIX = "atp-scratch-"
# Progress is sent at most this often, in seconds.
PROGRESS_EVERY = 0.1
MAX_PROGRESS_MESSAGE = 200
# The column is small, and logging's own levels end at 50.
MAX_LEVEL = 1000


class Context(Stepping, Growing):
    """The first argument of a handler.

    ``uuid``, ``identifier``, ``type``, ``collection``, ``priority`` and
    ``attempt`` are those of the Instance. ``report(kind, …)`` sends a message
    to the daemon; ``interruption()`` returns the reason to stop, or None.
    """

    # Class attributes, which the first use replaces: so each attempt makes a Context cheaply.
    _scratch: Path | None = None
    _own_root: tuple[Path, int] | None = None
    _progress_sent = 0.0
    _unsent_progress: tuple[float | None, str] | None = None
    _messages: Messages | None = None
    _results: Results | None = None
    # The texts of sensitive inputs: they are masked in what the attempt writes.
    secrets: tuple[str, ...] = ()
    _files = 0
    _is_over = False

    def __init__(
        self,
        claimed: Claimed,
        *,
        report: Callable[..., object],
        interruption: Callable[[], object],
        scratch_root: Path,
        halting: Halting | None = None,
        keeper: Keeper | None = None,
        grower: Grower | None = None,
        worker: str = "",
    ) -> None:
        #: The name with which the worker signs, as "host:pid worker 2".
        self.worker = worker
        self._claimed = claimed
        self._report = report
        self._interruption = interruption
        self._halting = halting
        self._keeper = keeper
        self._grower = grower
        self._scratch_root = scratch_root

    @property
    def key(self) -> tuple[int, int]:
        """The key of the Instance in the database, and the number of the attempt."""
        return self._claimed.key

    @property
    def uuid(self) -> UUID:
        return self._claimed.uuid

    @property
    def identifier(self) -> str | None:
        return self._claimed.identifier

    @property
    def type(self) -> str:
        return self._claimed.type

    @property
    def collection(self) -> str:
        return self._claimed.collection

    @property
    def priority(self) -> int:
        return self._claimed.priority

    @property
    def attempt(self) -> int:
        return self._claimed.attempt

    @property
    def retries(self) -> int:
        """The number of earlier attempts that failed and were followed by a retry."""
        return self._claimed.retries

    @property
    def restarts(self) -> int:
        """The number of earlier attempts that were lost: their worker died, or ran too long."""
        return self._claimed.restarts

    @property
    def results(self) -> Results:
        """The outputs of other nodes of the graph, by name: ``context.results["scene"]``."""
        if self._results is None:
            self._results = Results(self._claimed.instance)
        return self._results

    def progress(self, done: float, total: float | None = None, message: object = "") -> None:
        """Report the progress: ``done`` of ``total``, or a fraction if no total is given.

        It is cheap, so call it often: at most ten messages a second are sent.
        """
        for name, value in (("done", done), ("total", total)):
            if isinstance(value, str):
                raise TypeError(f"progress(): {name} is {value!r}, no number; say message=…")
        fraction: Any = done / total if total else (done if total is None else 0.0)
        fraction = min(max(float(fraction), 0.0), 1.0)
        if math.isnan(fraction):
            fraction = None  # unknown
        message = clean(str(message) or (f"{done} of {total}" if total is not None else ""))
        message = self.hidden(message)
        self._unsent_progress = (fraction, message[:MAX_PROGRESS_MESSAGE])
        if time.monotonic() - self._progress_sent >= PROGRESS_EVERY:
            self.flush()

    def flush(self) -> None:
        """Send the last progress, if it has not been sent yet."""
        if self._unsent_progress is not None:
            self._report("progress", *self._unsent_progress)
            self._unsent_progress = None
            self._progress_sent = time.monotonic()
            if self._halting is not None and not self._is_over:
                self._halting.look()

    def hidden(self, text: str) -> str:
        """Return text with a mask for each value of a sensitive input."""
        return hidden(text, self.secrets) if self.secrets else text

    def log(self, message: object, level: int | str = logging.INFO) -> None:
        """Write a line to the Instance's log. ``level`` is a level of ``logging``."""
        if isinstance(level, str):
            names = logging.getLevelNamesMapping()
            if level.upper() not in names:
                raise ValueError(f"log(level={level!r}): must be one of {', '.join(names)}")
            level = names[level.upper()]
        if self._messages is None:
            self._messages = Messages(self._report)
        level = min(max(int(level), 0), MAX_LEVEL)
        self._messages.add(level, shorten(self.hidden(clean(str(message)))))

    def check(self) -> None:
        """Raise Interrupted if the attempt has to end: call it now and then in long loops.

        If the Instance has been paused, this waits until it is resumed.
        """
        self.end_if_asked()
        if self._halting is not None:
            self._halting.look()
            self.end_if_asked()

    def end_if_asked(self) -> None:
        """Raise Interrupted if the attempt has to end; never wait."""
        if self._interruption() is not None:
            raise Interrupted

    @contextmanager
    def paused(self, message: object = "") -> Iterator[None]:
        """Be PAUSED in the block, while the handler waits for work that others do.

        Meanwhile another task takes its place in the pool, and the time does not count for
        the time-out. At the end of the block the handler waits for a place. Raises
        PausedInTransaction, and Interrupted if the attempt has to end.
        """
        if self._halting is None:
            yield
            return
        with self._halting.own(shorten(self.hidden(clean(str(message))))):
            yield
        self.end_if_asked()

    @property
    def scratch(self) -> Path:
        """A directory for this attempt alone, as a Path; it is removed when the attempt ends."""
        if self._scratch is None:
            root = self._private_root()
            self._scratch = Path(tempfile.mkdtemp(prefix=f"{self.uuid}-", dir=root))
        return self._scratch

    def _private_root(self) -> Path:
        """Return the folder for scratch directories, or a new one where strangers can write in it.

        A program that tidies temporary files may have removed it, and another user made it anew.
        """
        top, root = Path(settings.SCRATCH_DIR), self._scratch_root
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        levels = [each for each in (*reversed(root.parents), root) if top in each.parents]
        if ownership.is_strange(top):
            refused, top = top, top.parent
        else:
            refused = next((each for each in levels if not ownership.make_private(each)), None)
        if refused is None:
            return root
        self._own_root = filelock.make_locked_folder(top, SCRATCH_PREFIX)
        text = (
            f"{refused}, the folder for scratch directories, is not this user's alone: "
            f"{ownership.whose(refused)}. This attempt uses {self._own_root[0]} instead."
        )
        logger.warning("%s: %s", self.uuid, text)
        self.log(text, logging.WARNING)
        return self._own_root[0]

    def end(self) -> None:
        """Send all messages that are not sent yet, and pause no more: the handler has ended."""
        self._is_over = True
        self.say_all()
        self.flush()

    def say_all(self) -> None:
        """Send all messages that are held back."""
        if self._messages is not None:
            self._messages.end()

    def remove_scratch(self) -> None:
        """Remove the scratch directory, if one was made."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if self._own_root is not None:
            shutil.rmtree(self._own_root[0], ignore_errors=True)
            os.close(self._own_root[1])
            self._own_root = None

    def publish(
        self,
        file: str | Path | bytes | bytearray | memoryview | IO[bytes],
        name: str | None = None,
        content_type: str | None = None,
    ) -> dict[str, Any]:
        """Store a result file, put its link into the Response, and return its description.

        ``file`` is a path, bytes, or a binary file object. The description is
        a dict with ``name``, ``path`` (in Django's storage), ``content_type``,
        ``size`` (bytes) and ``attempt``. Raises TooLarge beyond
        ``ATP["MAX_FILES"]`` files.
        """
        if self._files >= settings.MAX_FILES:
            raise TooLarge(f"publish(): one attempt may publish {settings.MAX_FILES} files.")
        if content_type:
            check_content_type(content_type)
        name, opened = open_file(file, name)
        with opened:
            size = size_of(opened)
            valid = storages[settings.STORAGE].get_valid_name(posixpath.basename(name))
            path = store_file(storage_path(self.uuid, self.attempt, valid), opened)
            size = storages[settings.STORAGE].size(path) if size is None else size
        guessed = content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        description = {
            "name": clean(name),
            "path": path,
            "content_type": guessed,
            "size": size,
            "attempt": self.attempt,
        }
        self._files += 1
        self._report("file", description)
        return description
