"""Which Types a daemon serves, and what its command refuses."""

import subprocess
from types import SimpleNamespace

import pytest

from atp.daemon.options import Options
from tests.helpers import DEADLINE, child_environment, manage

TYPES = [
    SimpleNamespace(names=names)
    for names in (("dem.flow",), ("dem.hillshade",), ("mail.send", "post.send"))
]


@pytest.mark.parametrize(
    ("types", "exclude", "served"),
    [
        ((), (), ("dem.flow", "dem.hillshade", "mail.send", "post.send")),
        (("dem.*",), (), ("dem.flow", "dem.hillshade")),
        (("dem.*", "mail.send"), ("*.flow",), ("dem.hillshade", "mail.send", "post.send")),
        ((), ("dem.*",), ("mail.send", "post.send")),
        (("post.*",), (), ("mail.send", "post.send")),
        (("mail.*",), ("post.*",), ("mail.send",)),
        (("nothing",), (), ()),
    ],
)
def test_served(types, exclude, served):
    """What a Type was called formerly goes with it, unless it is excluded."""
    assert Options(types=types, exclude=exclude).served(TYPES) == served


@pytest.mark.parametrize(
    ("args", "settings", "words"),
    [
        (["--processes", "0"], "{}", "--processes"),
        (["--processes", "many"], "{}", "--processes"),
        (["--grace", "-1"], "{}", "--grace"),
        (["--max-memory-per-worker", "lots"], "{}", "--max-memory-per-worker"),
        (["--max-memory-per-worker", "5"], "{}", "say '5MiB' if that is what is meant"),
        (["--type", "deamon.note"], "{}", "Did you mean 'daemon.note'?"),
        (["--log-format", "xml"], "{}", "invalid choice"),
        ([], '{"LAESE": 30}', "Did you mean 'LEASE'?"),
        ([], '{"LEASE": 5.0, "KILL_AFTER": 6.0}', "before the lease ends"),
        ([], '{"LEASE": "long"}', "must be float"),
    ],
)
def test_bad_arguments_and_settings(transactional_db, args, settings, words):
    """A clear word, no traceback, nothing started (G13)."""
    done = subprocess.run(
        manage("atpd", "--drain", *args),
        env=child_environment(ATP_TEST_SETTINGS=settings),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr
