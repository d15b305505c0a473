"""A service that takes its time to answer, beside others: ``python -m benchmarks.core.slow MS``.

It prints its port. Each request waits for so many milliseconds.
"""

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from .web import HOST

ROOT = Path(__file__).resolve().parents[2]
BACKLOG = 1024
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@contextmanager
def slow_service(milliseconds):
    """Run the service, in a process of its own, until the end of the block; give its port."""
    command = [sys.executable, "-m", "benchmarks.core.slow", str(milliseconds)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve(seconds):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(seconds)
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]) / 1000))
