"""The routes of the web application, one file per resource."""
