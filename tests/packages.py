"""Debian packages that tests need, installed where they are missing."""

import os
import shutil
import subprocess

# Other processes may be installing too, and a mirror may fail once.
PATIENT = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")


class NotInstalled(Exception):
    """Packages could not be installed; the message says why."""


def install(*packages):
    """Install packages with apt-get. Raises NotInstalled."""
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        command = [*_apt_get(), *PATIENT, *arguments]
        print(f"For the tests: {' '.join(command)}", flush=True)
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
            raise NotInstalled(f"{ended.stdout}\nThat failed, see above.")


def _apt_get():
    """Return the command that may install packages. Raises NotInstalled."""
    if shutil.which("apt-get") is None:
        raise NotInstalled("There is no apt-get to install one.")
    command = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo") is None:
        raise NotInstalled("Installing one takes root or sudo.")
    # With -n it fails where it would ask for a password.
    return ["sudo", "-n", *command]
