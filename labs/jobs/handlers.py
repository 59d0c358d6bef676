"""A Starlette application whose handler is no coroutine: AnyIO's threads run it, and it sleeps.

    handlers.py

AnyIO's limiter allows 40 of them at a time.
"""

import os
import time

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


def now_ms():
    return 1e3 * time.monotonic()


def render_report():
    time.sleep(0.1)


def report(request):
    begun = now_ms()
    render_report()
    return JSONResponse({"read": begun, "begun": begun, "ended": now_ms()})


class Server(uvicorn.Server):
    """Says that it is ready when it listens, and not before."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        with open(os.environ["READY_FILE"], "w") as ready:
            ready.write(f"{os.getpid()} 127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}\n")


def main():
    application = Starlette(routes=[Route("/{rest:path}", report)])
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=0,
        loop="asyncio",
        http="h11",
        access_log=False,
        log_level="warning",
    )
    Server(config).run()


if __name__ == "__main__":
    main()
