"""The files of a running daemon: scratch space, and its lease where the lease is a lock."""

import contextlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from ...conf import settings
from ...exceptions import FolderRefused
from ...store import filelock, get_store
from ...words import ownership
from . import abandoned

_PREFIX = "atp-scratch-"
_UNLOCKED = "atp-new-"
_LOCK = ".lock"
# How often a folder is made anew that another daemon removes.
ATTEMPTS = 5


class DaemonFolders:
    """Made by the supervisor before it forks; children inherit the locks."""

    def __init__(self):
        self.scratch = None
        self.lock = ""
        self._descriptors = []

    @property
    def mark(self):
        """The name of this daemon, which no other has."""
        return self._mark

    def make(self):
        """Make the scratch folder, and take the lease's lock where leases are locks."""
        remove_abandoned()
        # It gets its name once it is locked, or another daemon could take it for abandoned.
        with _told("ATP['SCRATCH_DIR']", settings.SCRATCH_DIR):
            made = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=settings.SCRATCH_DIR))
        self._descriptors.append(filelock.acquire(made / _LOCK))
        self.scratch = made.rename(made.with_name(made.name.replace(_UNLOCKED, _PREFIX)))
        self._mark = abandoned.mark(self.scratch.name)
        folder = get_store().lock_folder
        if folder is not None:
            try:
                with _told("The folder of the daemons' locks", folder):
                    self._take_lock(folder)
            except FolderRefused:
                self.remove()
                self.close()
                raise

    def _take_lock(self, folder):
        name = f"{uuid.uuid4()}.lock"
        for remaining in reversed(range(ATTEMPTS)):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._descriptors.append(filelock.acquire(folder / name))
                break
            except FileNotFoundError:  # the last daemon that had a lock there has ended just now
                if not remaining:
                    raise
        self.lock, self._lock_path = name, folder / name

    def close(self):
        """Let go of the locks, in a process that goes on when its daemon has ended."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def remove(self):
        """Remove what was made. The locks are free when the last process of the daemon is dead."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        if self.lock:
            filelock.remove(self._lock_path)
            _remove_if_unused(self._lock_path.parent)


def _remove_if_unused(folder):
    """Remove the folder of the locks, unless other daemons have theirs there."""
    with contextlib.suppress(OSError):
        # What listened there gets its name once it is locked; locks of daemons may not be yet.
        for path in folder.glob("*.ear"):
            if filelock.is_free(path):
                filelock.remove(path)
        folder.rmdir()


@contextlib.contextmanager
def _told(name, folder):
    """Say whose a folder is that this process may not write to."""
    try:
        yield
    except PermissionError as error:
        raise FolderRefused(
            f"{name}, {folder}, cannot be written: {ownership.whose(folder)}. "
            "Run every atpd as the same user, or give that user the folder."
        ) from error


def remove_abandoned():
    """Remove scratch folders of daemons of ours that were killed with all their processes."""
    for folder in Path(settings.SCRATCH_DIR).glob(f"{_PREFIX}*"):
        try:
            ours = folder.stat().st_uid == os.getuid() and (folder / _LOCK).exists()
            if ours and filelock.is_free(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another daemon was quicker
