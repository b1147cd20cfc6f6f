"""The web server that agent and gateway fill with routes.

application application with middleware around it, still without routes
server      runs uvicorn in an event loop, with limits on each connection
admission   limits on all connections, requests and viewers together, and per client
access      host names, rate limit, authentication with its password checks, origin of writes
web_config  the web configuration file, its TLS, and the rules in force
requests    query parameters and bodies; problems: error documents, and their part of OpenAPI
stream      viewers of server-sent events
pages       parts of all pages, and the API reference; static: the live page's scripts and styles
"""
