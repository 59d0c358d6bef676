"""A gRPC server whose calls each take a thread, and clients of it.

    rpc.py  THREADS               the server, on a port of the system's choice; the clients of
                                  streams.py have calls of their own
    rpc.py  load ADDRESS          the clients
    rpc.py  load ADDRESS attach   the same, with whywait attached once all watch

Four clients watch: each stream of events keeps a thread for as long as it lasts. One of them leaves
after a while and comes again, unless whywait attaches. Others make short calls, which need a
thread, too.
"""

import json
import os
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

WATCHERS, CALLERS, SECONDS = 4, 6, 6.0
EVENT_S, STAYS_S, AWAY_S, PAUSE_S = 0.25, 0.8, 0.2, 0.2
# Each client has a connection of its own.
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


def get(_request, _context):
    return b"answer"


def work_for(seconds):
    def work(_request, _context):
        time.sleep(seconds)
        return b"answer"

    return work


def send_events(_request, context):
    while context.is_active():
        yield b"event"
        time.sleep(EVENT_S)


HANDLERS = {
    "/lab/Get": grpc.unary_unary_rpc_method_handler(get),
    "/lab/Watch": grpc.unary_stream_rpc_method_handler(send_events),
    "/lab/quick": grpc.unary_unary_rpc_method_handler(work_for(0.01)),
    "/lab/slow": grpc.unary_unary_rpc_method_handler(work_for(0.3)),
}


class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return HANDLERS.get(details.method)


def serve(threads):
    server = grpc.server(futures.ThreadPoolExecutor(threads))
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    Path(os.environ["READY_FILE"]).write_text(f"{os.getpid()} 127.0.0.1:{port}\n", "ascii")
    server.wait_for_termination()


def watch(address, comes_and_goes, end, watching):
    while (left := end - time.monotonic()) > 0:
        with grpc.insecure_channel(address, OPTIONS) as channel:
            stays = STAYS_S if comes_and_goes else left
            events = channel.unary_stream("/lab/Watch")(b"", timeout=stays)
            try:
                for _ in events:
                    watching.set()
            except grpc.RpcError:
                pass  # its time is over
        time.sleep(AWAY_S)


def call(address, end, took):
    with grpc.insecure_channel(address, OPTIONS) as channel:
        ask = channel.unary_unary("/lab/Get")
        while time.monotonic() < end:
            begun = time.monotonic()
            ask(b"question", timeout=20)
            took.append(1e3 * (time.monotonic() - begun))
            time.sleep(PAUSE_S)


def load(address, attaches):
    end = time.monotonic() + (SECONDS / 2 if attaches else SECONDS)
    took, watching = [], [threading.Event() for _ in range(WATCHERS)]
    watchers = [
        threading.Thread(target=watch, args=(address, not attaches and number == 0, end, event))
        for number, event in enumerate(watching)
    ]
    for watcher in watchers:
        watcher.start()
    # The watchers come first.
    for event in watching:
        event.wait(SECONDS)
    if attaches:
        client.attach()
    callers = [threading.Thread(target=call, args=(address, end, took)) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for one in watchers + callers:
        one.join()
    took.sort()
    truth = {
        "calls": len(took),
        "p50_ms": round(took[len(took) // 2], 1),
        "max_ms": round(took[-1], 1),
        "load": {"count": len(took), "sum_ms": round(sum(took), 3)},
    }
    print(f"ground-truth: {json.dumps(truth)}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2], sys.argv[3:] == ["attach"])
    else:
        serve(int(sys.argv[1]))
