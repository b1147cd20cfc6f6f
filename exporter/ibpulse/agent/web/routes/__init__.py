"""The routes of the web application, one file per resource; `pages_route` has the pages and the health probes."""
