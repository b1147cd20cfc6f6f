"""Access to the server: the web configuration file, TLS and client certificates, passwords, rate limit, bodies."""
