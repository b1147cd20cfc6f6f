"""The web server that agent and gateway fill with routes.

application application with access control and middleware, still without routes
server      runs uvicorn in an event loop; connection: limits on one connection
admission   limits on all connections, requests and viewers together, and per client
middleware  headers, errors and the server's own metrics, for every request
auth        the web configuration file: TLS, passwords, rate limit; host_names: the names that are served
parameters, schemas, problems   query parameters, what OpenAPI says of routes, error documents
stream      viewers of server-sent events; capture_requests: requests for captures, and alerts
page_parts  what all pages are made of; reference: that of the API; static: the live page's scripts and styles
"""
