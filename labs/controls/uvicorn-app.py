"""An ASGI application under uvicorn, on a port of the system's choice."""

import asyncio
import os
import socket

import uvicorn


async def application(scope, receive, send):
    await asyncio.sleep(0.005)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Server(uvicorn.Server):
    """Says that it is ready when it listens, and not before."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        with open(os.environ["READY_FILE"], "w") as ready:
            ready.write(f"{os.getpid()} 127.0.0.1:{sockets[0].getsockname()[1]}\n")


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(application, loop="asyncio", http="h11", lifespan="off", access_log=False, log_level="warning")
    Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
