"""The web server: metrics, API, health, live page. The only package that imports FastAPI and uvicorn.

app         assembles the application; parts: its interface to the daemon
server      runs uvicorn in the daemon's event loop
connection  limits on one connection; open_connections: on all of them, in total and per client
middleware  headers, errors and the server's own metrics, for every request
auth        the web configuration file: TLS, passwords, rate limit
routes      one file per resource; window, stream: their larger parts
parameters, schemas, problems   query parameters, response models, error documents
wide_requests           runs long requests in threads, a few in parallel; fair_queue: whose turn it is
static      the live page's scripts and styles
"""
