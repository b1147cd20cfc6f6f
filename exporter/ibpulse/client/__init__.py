"""The only HTTP client: asks daemons, gateways and lists of nodes over httpx, which all modules but the first load.

address     the address of a daemon, and waiting until it listens
transport   bounded requests to one server, for an event loop
connection  the same without one: requests to one daemon
faults      why a request fails, as sentences
windows     windows of samples, as JSON and NPY
"""

import sys

if "httpx" not in sys.modules:
    # httpx would load its own command line, and click, rich and pygments with it: a third of the time of its import
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
