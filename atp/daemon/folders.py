"""What a daemon keeps on disk while it runs: scratch space, and its lease where that is a lock."""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

from .. import filelock
from ..conf import settings
from ..store import get_store
from . import abandoned

_PREFIX = "atp-scratch-"
_UNLOCKED = "atp-new-"
_LOCK = ".lock"


class DaemonFolders:
    """Made by the supervisor before it forks; children inherit the locks."""

    def __init__(self):
        self.scratch = None
        self.lock = ""
        self._descriptors = []

    @property
    def mark(self):
        """What no other daemon is known by."""
        return self._mark

    def make(self):
        """Make the scratch folder, and take the lease's lock where leases are locks."""
        remove_abandoned()
        # It gets its name once it is locked, or another daemon could take it for abandoned.
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=settings.SCRATCH_DIR))
        self._descriptors.append(filelock.acquire(made / _LOCK))
        self.scratch = made.rename(made.with_name(made.name.replace(_UNLOCKED, _PREFIX)))
        self._mark = abandoned.mark(self.scratch.name)
        folder = get_store().lock_folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = f"{uuid.uuid4()}.lock"
            self._lock_path = folder / self.lock
            self._descriptors.append(filelock.acquire(self._lock_path))

    def remove(self):
        """Remove what was made. The locks are free when the last process of the daemon is dead."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        if self.lock:
            filelock.remove(self._lock_path)


def remove_abandoned():
    """Remove scratch folders of daemons of ours that were killed with all their processes."""
    for folder in Path(settings.SCRATCH_DIR).glob(f"{_PREFIX}*"):
        try:
            ours = folder.stat().st_uid == os.getuid() and (folder / _LOCK).exists()
            if ours and filelock.is_free(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another daemon was quicker
