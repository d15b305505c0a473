"""The files of a running daemon: its scratch folder, and its lock file if leases are locks."""

import contextlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from .. import folders
from ..authoring.context import SCRATCH_PREFIX
from ..conf import settings
from ..exceptions import FolderRefused
from ..store import get_store
from . import descendants

# The most attempts to make a folder that other daemons remove.
ATTEMPTS = 5


class DaemonFolders:
    """The folders and locks of a daemon. The supervisor makes them; its children inherit them."""

    def __init__(self) -> None:
        self.scratch: Path | None = None
        self.lock = ""
        self._descriptors: list[int] = []

    @property
    def mark(self) -> str:
        """The unique mark of this daemon."""
        return self._mark

    def make(self) -> None:
        """Make the scratch folder, and take the lock of the lease if leases are locks."""
        remove_abandoned()
        if folders.is_strange(settings.SCRATCH_DIR):
            raise FolderRefused(
                f"ATP['SCRATCH_DIR'], {settings.SCRATCH_DIR}, is where every user can make it, "
                f"and not this user's: {folders.describe_owner(settings.SCRATCH_DIR)}. "
                "Remove it, or choose a folder elsewhere."
            )
        with _told("ATP['SCRATCH_DIR']", settings.SCRATCH_DIR):
            made = folders.make_locked_folder(settings.SCRATCH_DIR, SCRATCH_PREFIX)
        self.scratch, descriptor = made
        self._descriptors.append(descriptor)
        self._mark = descendants.mark(self.scratch.name)
        folder = get_store().lock_folder
        if folder is not None:
            try:
                with _told("The folder of the daemons' locks", folder):
                    self._take_lock(folder)
            except FolderRefused:
                self.remove()
                self.close()
                raise

    def _take_lock(self, folder: Path) -> None:
        name = f"{uuid.uuid4()}.lock"
        for remaining in reversed(range(ATTEMPTS)):
            try:
                # Not its parents: the folder of the database is there, or its name is wrong.
                folders.make_folder(folder)
                if folder.stat().st_mode & stat.S_IWOTH:
                    raise FolderRefused(
                        f"The folder of the daemons' locks, {folder}, can be written by every "
                        f"user: {folders.describe_owner(folder)}. Whoever can remove a lock there "
                        "can have a running task started twice. Give that folder to a group that "
                        "the users of all daemons are in: chmod 2770."
                    )
                self._descriptors.append(folders.acquire_lock(folder / name))
                break
            except FileNotFoundError:  # the last daemon that had a lock there has ended just now
                if not remaining:
                    raise
        self.lock, self._lock_path = name, folder / name

    def close(self) -> None:
        """Release the locks, in a process that goes on after its daemon has ended."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def remove(self) -> None:
        """Remove the files. The locks become free when the daemon's last process is dead."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        if self.lock:
            folders.remove_file(self._lock_path)
            _remove_if_unused(self._lock_path.parent)


def _remove_if_unused(folder: Path) -> None:
    """Remove the folder of the locks, unless other daemons have their locks there."""
    with contextlib.suppress(OSError):
        # A listener's file is locked before it gets its name, so a free one is left over. A
        # daemon's lock file may not be locked yet.
        for path in folder.glob("*.ear"):
            if folders.is_free(path):
                folders.remove_file(path)
        # Somebody has made it for daemons of several users: see docs/atpd.md.
        if not folder.stat().st_mode & stat.S_ISGID:
            folder.rmdir()


@contextlib.contextmanager
def _told(name: str, folder: str | Path) -> Iterator[None]:
    """Raise FolderRefused, with the folder's owner, if it cannot be written or made."""
    try:
        yield
    except PermissionError as error:
        raise FolderRefused(
            f"{name}, {folder}, cannot be written: {folders.describe_owner(folder)}. "
            "Run every atpd as the same user, or give that user the folder."
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        parent = Path(folder).parent
        is_made = parent.is_dir()
        why = "is not there" if is_made else f"cannot be made: there is no folder {parent}"
        raise FolderRefused(f"{name}, {folder}, {why}.") from error


def remove_abandoned() -> None:
    """Remove the scratch folders of this user's daemons that have no living process."""
    for folder in Path(settings.SCRATCH_DIR).glob(f"{SCRATCH_PREFIX}*"):
        try:
            ours = folder.lstat().st_uid == os.getuid() and (folder / folders.LOCK).exists()
            if ours and folders.is_free(folder / folders.LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another daemon was quicker
