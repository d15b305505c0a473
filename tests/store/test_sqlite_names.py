"""The file of a database on SQLite, which Django takes as a path or as a URI."""

import os
from types import SimpleNamespace

import pytest

from atp.store.sqlite import vendor


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own queue.sqlite3"
    path.touch()
    return path


@pytest.mark.parametrize(
    "name",
    [
        "{path}",
        "own queue.sqlite3",
        "file:{path}",
        "file://{quoted}?mode=rw",
        "file:own%20queue.sqlite3?mode=rw&cache=private",
    ],
)
def test_locks_lie_beside_it(path, name):
    given = name.format(path=path, quoted=str(path).replace(" ", "%20"))
    connection = SimpleNamespace(settings_dict={"NAME": given})
    assert vendor.lock_folder(connection) == path.with_name("own queue.sqlite3-atpd")
    found = os.stat(path)
    assert vendor.file_id(connection) == (found.st_dev, found.st_ino)
