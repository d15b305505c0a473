"""Commands that prepare something, heard only if they fail."""

import subprocess

from .failure import Failure


def run(sentence, *command):
    """Run a command; raises Failure with the sentence, and with what it said, if it fails."""
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        raise Failure(sentence, ended.stdout)
