"""Requests the URL in the first argument from every pod behind its Service; fails unless all of them return 200.

`--expect=N`: also fails unless there are N pods; 0 is any number but none.
"""

import http.client
import socket
import ssl
import sys
from urllib.parse import urlsplit

address, only_connect = urlsplit(sys.argv[1]), "--only-connect" in sys.argv
try:
    found = socket.getaddrinfo(address.hostname, address.port, proto=socket.IPPROTO_TCP)
except OSError as error:
    print(f"{address.hostname}: {error}")
    sys.exit("no pods: see why with `kubectl describe daemonset`; does the namespace allow them (Pod Security)?")
pods = sorted({each[4][0] for each in found})
expected = next((int(word.partition("=")[2]) for word in sys.argv if word.startswith("--expect=")), 0)
bad = 0
for pod in pods:
    try:
        with socket.create_connection((pod, address.port), 5) as connection:
            if only_connect:
                print(f"{pod}: listens")
                continue
            if address.scheme == "https":
                # pods are addressed by IP, so their certificates cannot be verified
                anyone = ssl._create_unverified_context()
                connection = anyone.wrap_socket(connection, server_hostname=address.hostname)
            asked = http.client.HTTPConnection(pod, address.port)
            asked.sock = connection
            asked.request("GET", address.path)
            answer = asked.getresponse()
            print(f"{pod}: {answer.status} {answer.read().decode().strip()}")
            bad += answer.status != 200
    except OSError as error:
        print(f"{pod}: {error}")
        bad += 1
print(f"{len(pods) - bad} of {expected or len(pods)} pods answer")
sys.exit(bool(bad) or not pods or (expected > 0 and len(pods) != expected))
