"""A Slurm of one node, of Debian's packages."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
# Its daemons run as root, as they do anywhere.
MAY_RUN = os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))

CONFIGURATION = """
ClusterName=atp
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def slurm():
    """Run it; give the path of its configuration, which its programs need in SLURM_CONF."""
    host = socket.gethostname().partition(".")[0]
    with ExitStack() as stack:
        # munged refuses a folder that others may write to, and pytest's is under such a one.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/run")))
        folder.chmod(0o755)
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir(mode=0o755)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        frees = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [free.getsockname()[1] for free in frees]
        for free in frees:
            free.close()
        path = folder / "slurm.conf"
        facts = {"host": host, "ports": ports, "folder": folder, "cpus": os.cpu_count()}
        path.write_text(CONFIGURATION.format(**facts))
        own = {**os.environ, "SLURM_CONF": str(path)}

        def start(*words):
            process = subprocess.Popen(
                words, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        munge = folder / "munge"
        files = (f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed"))
        start("munged", "--foreground", f"--socket={folder}/munge.sock", *files)
        wait_for((folder / "munge.sock").exists, what="munged")
        start("slurmctld", "-D")
        start("slurmd", "-D", "-N", host)
        listed = ["sinfo", "--noheader", "--format=%T"]

        def is_idle():
            said = subprocess.run(listed, env=own, capture_output=True, text=True, check=False)
            return said.stdout.strip() == "idle"

        wait_for(is_idle, what="the node")
        yield path
