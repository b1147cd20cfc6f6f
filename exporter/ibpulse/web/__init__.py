"""HTTP: metrics, the API of raw windows, health, the live page. The only package that imports FastAPI and uvicorn.

app         puts everything together; parts: what the daemon hands in
server      uvicorn in our event loop, and how many connections it accepts, in all and per client
connection  limits on one connection
middleware  headers, errors and the server's own metrics, for every request
auth        the web configuration file: TLS, passwords, rate limit
routes      one file per resource; window, stream: what two of them need
parameters, schemas, problems   query parameters, shapes of answers, refusals
wide_requests           long requests: in threads, and only a few in parallel
static      the live page in the browser
"""
