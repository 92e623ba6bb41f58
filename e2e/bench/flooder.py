"""A client that does nothing but LIST pods, so many at once, until SIGTERM; then it prints what it was answered.

    python -m e2e.bench.flooder URL CA_FILE TOKEN IN_FLIGHT

One line of JSON: {"200": lists that were served whole, "429": refused, …}. Of its own process, so that the CPU that it
takes is nobody else's.
"""

import asyncio
import json
import signal
import ssl
import sys
from collections import Counter

import aiohttp

_PAUSE_AFTER_REFUSAL_S = 0.05


async def _flood(url: str, ca_file: str, token: str, in_flight: int) -> Counter[str]:
    answers: Counter[str] = Counter()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca_file), limit=0)
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:

        async def one_after_the_other() -> None:
            while True:
                try:
                    async with session.get("/api/v1/pods") as response:
                        async for _ in response.content.iter_any():
                            pass
                        answers[str(response.status)] += 1
                except aiohttp.ClientError as error:
                    answers[type(error).__name__] += 1
                    await asyncio.sleep(_PAUSE_AFTER_REFUSAL_S)

        tasks = [asyncio.create_task(one_after_the_other()) for _ in range(in_flight)]
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return answers


def main() -> None:
    """Flood until SIGTERM."""
    url, ca_file, token, in_flight = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(_flood(url, ca_file, token, int(in_flight)))) + "\n")


if __name__ == "__main__":
    main()
