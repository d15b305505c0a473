"""What the other tests here take for granted."""

import subprocess
import sys

import psutil
import pytest

from tests.helpers import wait_for

from .harness import is_alive

# Its first thread ends, another goes on.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there it is a zombie then")
def test_what_has_a_thread_left_is_alive():
    with subprocess.Popen([sys.executable, "-c", HEADLESS]) as process:
        try:
            status = psutil.Process(process.pid).status
            wait_for(lambda: status() == psutil.STATUS_ZOMBIE, what="the end of its first thread")
            assert is_alive(process.pid)
        finally:
            process.kill()
            wait_for(lambda: not is_alive(process.pid), what="the end of all")
