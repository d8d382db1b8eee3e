"""Models that serve: python servers.py tasks|pool|socket"""

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

REQUESTS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).eval()
user = contextvars.ContextVar("user")


def answer(number):
    with torch.inference_mode():
        x = torch.full((4, 64), number / REQUESTS)
        main = threading.current_thread() is threading.main_thread()
        return f"{user.get('nobody')} {model(x).sum().item():.7f} {main}"


async def asked(number, run):
    user.set(f"user {number}")
    await asyncio.sleep(0.001 * (number % 3))
    return await run(number)


async def tasks():
    """Requests in one event loop, eight at a time."""

    async def run(number):
        first = answer(number)
        await asyncio.sleep(0)
        return f"{first} {answer(number)}"

    found = []
    for first in range(0, REQUESTS, 8):
        found += await asyncio.gather(*(asked(number, run) for number in range(first, first + 8)))
    return found


async def pool():
    """Requests in a pool of two threads, with the context of the task that asks; then in new threads."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as workers:

        async def run(number):
            context = contextvars.copy_context()
            return await loop.run_in_executor(workers, lambda: context.run(answer, number))

        found = await asyncio.gather(*(asked(number, run) for number in range(REQUESTS)))
    return found + [await asyncio.to_thread(answer, number) for number in range(4)]


async def socket():
    """A server on a local port that a client of the same program asks, one line a request."""

    ended = asyncio.Event()

    async def serve(reader, writer):
        while line := await reader.readline():
            user.set(f"client {int(line) % 3}")
            writer.write(answer(int(line)).encode() + b"\n")
            await writer.drain()
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        found = []
        for number in range(REQUESTS):
            writer.write(f"{number}\n".encode())
            found.append((await reader.readline()).decode().strip())
        writer.close()
        await ended.wait()
    return found


for line in asyncio.run(globals()[sys.argv[1]](), debug=sys.argv[-1] == "debug"):
    print(line)
print(threading.active_count())
