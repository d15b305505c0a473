"""Tests of the file locks in :mod:`atp.folders`."""

import os
import signal
import stat

import pytest

from atp import folders

from .helpers import wait_for


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lock")


def test_lock_is_held_until_its_descriptor_is_closed(path):
    assert folders.is_free(path)
    folders.remove_file(path)
    descriptor = folders.acquire_lock(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert not folders.is_free(path)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        folders.acquire_lock(path)
    assert set(os.listdir("/proc/self/fd")) == before  # nothing is left open
    os.close(descriptor)
    assert folders.is_free(path)  # is_free does not take the lock
    os.close(folders.acquire_lock(path))
    folders.remove_file(path)
    assert not os.path.exists(path)


def test_lock_is_open_to_the_group_only_if_the_folder_is_group_writable(tmp_path):
    """Whoever can read a file can also lock it, even after the holder has closed it."""
    modes = {0o755: 0o600, 0o777: 0o660, 0o750: 0o600, 0o770: 0o660, 0o707: 0o600}
    for folder, expected in modes.items():
        tmp_path.chmod(folder)
        path = tmp_path / "lock"
        path.touch()
        path.chmod(0o644)  # as another release has left the file
        os.close(folders.acquire_lock(path))
        assert stat.S_IMODE(path.stat().st_mode) == expected
    # A symbolic link is refused.
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        folders.acquire_lock(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_forked_child_keeps_the_lock_until_the_child_is_dead(path):
    """G3: a process shares a lock with its children. The kernel frees it when the last one ends."""
    descriptor = folders.acquire_lock(path)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    os.close(descriptor)
    assert not folders.is_free(path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for(lambda: folders.is_free(path))
