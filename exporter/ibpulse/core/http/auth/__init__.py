"""Access control: the web configuration file, TLS and client certificates, passwords, rate limit, request bodies."""
