"""An ASGI application under uvicorn, on a port of the system's choice."""

import asyncio
import os

import uvicorn


async def application(scope, receive, send):
    await asyncio.sleep(0.005)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]}
    )
    await send({"type": "http.response.body", "body": b"hello"})


class Server(uvicorn.Server):
    """Says that it is ready when it listens, and not before."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        with open(os.environ["READY_FILE"], "w") as ready:
            ready.write(f"{os.getpid()} 127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}\n")


def main():
    # asyncio makes the listener: it disables Nagle's algorithm only on sockets that say that they
    # are TCP's.
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=0,
        loop="asyncio",
        http="h11",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
    Server(config).run()


if __name__ == "__main__":
    main()
