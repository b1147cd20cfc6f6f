"""The web server: metrics, API, health, live page. The only package that imports FastAPI and uvicorn.

app         all routes of the daemon; parts: its interface to the daemon; application: what a gateway shares
server      runs uvicorn in the daemon's event loop
connection  limits on one connection
admission   limits on all connections, requests and viewers together, and per client
middleware  headers, errors and the server's own metrics, for every request
auth        the web configuration file: TLS, passwords, rate limit
routes      one file per resource; window, stream: their larger parts
parameters, schemas, problems   query parameters, what OpenAPI says of routes, error documents
static      the live page's scripts and styles
"""
