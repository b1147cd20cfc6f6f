"""Runs commands for the host: one JSON request and one JSON answer per TCP connection. It runs inside the machine.

`{"do": "run", "command": "shell text", "timeout_seconds": 60}` answers when the command has ended;
`{"do": "start", "arguments": [...], "log": "/path"}` starts a program and answers its process id;
`{"do": "poll", "pid": 12}` answers its exit status, or null while it runs.
"""

from __future__ import annotations

import json
import socketserver
import subprocess
from typing import Any

PORT = 7000
started: dict[int, subprocess.Popen[bytes]] = {}


def run(request: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", request["command"]],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=request["timeout_seconds"],
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return {"status": None, "stdout": (late.stdout or b"").decode(), "stderr": "out of time"}
    return {"status": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}


def start(request: dict[str, Any]) -> dict[str, Any]:
    with open(request["log"], "wb") as log:
        process = subprocess.Popen(
            request["arguments"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    started[process.pid] = process
    return {"pid": process.pid}


def poll(request: dict[str, Any]) -> dict[str, Any]:
    return {"status": started[request["pid"]].poll()}


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        try:
            answer = {"run": run, "start": start, "poll": poll}[request["do"]](request)
        except Exception as fault:
            answer = {"fault": f"{type(fault).__name__}: {fault}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with Server(("0.0.0.0", PORT), Handler) as server:
        server.serve_forever()
