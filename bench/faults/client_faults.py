"""Clients that misbehave, each kind from its own loopback address; the probes come from 127.0.0.1."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from urllib.parse import urlsplit

from bench.faults.liar import honest
from bench.faults.plan import Fault
from bench.faults.testbed import Testbed

IDLE_FROM_EACH = 128
STREAMS = 20
SLOW_REQUESTS = 40
BODIES = 4
PAUSE_SECONDS = 0.01
CONNECTING_SECONDS = 3.0
SEED = 5
FAR = 2**62
LIES: Mapping[str, Mapping[str, object]] = {
    "times": dict.fromkeys(("began_ms", "ended_ms", "start_ms", "time_ms", "now_ns"), FAR),
    "intervals": dict.fromkeys(("interval_ms", "batch_ms", "interval_seconds"), 1000),
    "names": dict.fromkeys(("node", "job_id", "device", "scheduler"), '<b onclick="x">\x1b[2J'),
    "rates": dict.fromkeys(("rate_bytes_per_second", "mean_bytes_per_second", "peak_bytes_per_second"), 1e308),
}
BROKEN = (
    b"\x00\xff\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET /" + b"%" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /api/v1/window?last=99999d&port=\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b'POST /api/v1/captures HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"reason"',
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


def connect(testbed: Testbed, source: str, **options: int) -> socket.socket:
    """A connection to the daemon from this loopback address.

    Raises:
        OSError: it is refused, or the daemon does not run.
    """
    address = urlsplit(testbed.service.url)
    if not address.port:
        raise ConnectionRefusedError("the daemon does not listen")
    made = socket.socket()
    try:
        if "receive_buffer" in options:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive_buffer"])
        made.settimeout(2.0)
        made.bind((source, 0))
        made.connect((address.hostname, address.port))
    except OSError:
        made.close()
        raise
    return made


@contextmanager
def held(
    testbed: Testbed, device: str, sources: tuple[str, ...], count: int, request: bytes, **options: int
) -> Iterator[None]:
    """`count` connections from each address send this, then neither send nor read anything."""
    deadline = time.monotonic() + CONNECTING_SECONDS
    with ExitStack() as stack:
        for source in sources * count:
            if time.monotonic() > deadline:
                break
            try:
                stack.enter_context(connect(testbed, source, **options)).sendall(request)
            except OSError:
                time.sleep(PAUSE_SECONDS)  # the daemon may refuse connections over its limits
        yield


@contextmanager
def repeated(
    testbed: Testbed, device: str, act: Callable[[Testbed, random.Random], None], clients: int
) -> Iterator[None]:
    """This number of clients acts repeatedly, with a pause in between."""
    stop = threading.Event()

    def client(number: int) -> None:
        rng = random.Random(SEED + number)
        while not stop.wait(PAUSE_SECONDS):
            try:
                act(testbed, rng)
            except OSError:
                pass  # refused, reset or timed out, as the daemon chooses

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def send_broken(testbed: Testbed, rng: random.Random) -> None:
    """Send a malformed request and disconnect."""
    with connect(testbed, "127.0.0.4") as made:
        made.sendall(rng.choice(BROKEN) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 2000)))
        made.settimeout(0.2)
        made.recv(1000)


def send_slowly(testbed: Testbed, rng: random.Random) -> None:
    """Send a request byte by byte and disconnect in the middle."""
    with connect(testbed, "127.0.0.5") as made:
        for byte in b"GET /metrics HTTP/1.1\r\nX-Slow: 1"[: rng.randrange(5, 30)]:
            made.sendall(bytes([byte]))
            time.sleep(0.1)


def send_big_body(testbed: Testbed, rng: random.Random) -> None:
    """Send a body of up to 64 MB in a request that takes 1 MiB, in chunks or with its length."""
    chunked = rng.random() < 0.5
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 67108864"
    with connect(testbed, "127.0.0.6") as made:
        made.sendall(b"POST /api/v1/captures HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
        for _ in range(64):
            made.sendall((b"100000\r\n" if chunked else b"") + bytes(1 << 20) + (b"\r\n" if chunked else b""))


@contextmanager
def lying(testbed: Testbed, device: str, lies: Mapping[str, object]) -> Iterator[None]:
    """A node of the gateway answers with other values for these members."""
    testbed.liar.lie = lies.get
    try:
        yield
    finally:
        testbed.liar.lie = honest


CROWD = ("127.0.0.2", "127.0.0.3")
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
STREAM = b"GET /api/v1/stream?every=100ms HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"GET /metrics HTTP/1.1\r\nHost:"

CLIENT_FAULTS = (
    Fault(
        "a crowd of idle connections", partial(held, sources=CROWD, count=IDLE_FROM_EACH, request=ASK), resource="web"
    ),
    Fault("half requests", partial(held, sources=CROWD, count=SLOW_REQUESTS, request=HALF), resource="web"),
    Fault(
        "streams that are not read",
        partial(held, sources=("127.0.0.7",), count=STREAMS, request=STREAM, receive_buffer=4096),
        resource="streams",
    ),
    Fault("slow requests", partial(repeated, act=send_slowly, clients=SLOW_REQUESTS // 2)),
    Fault("a flood of broken requests", partial(repeated, act=send_broken, clients=2)),
    *(
        Fault(f"a node of the gateway lies about {what}", partial(lying, lies=lies), resource="gateway")
        for what, lies in LIES.items()
    ),
    Fault("big bodies", partial(repeated, act=send_big_body, clients=BODIES)),
)
