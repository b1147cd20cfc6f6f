"""The front door: who may come in, how fast, with how much, and under which certificate.

tables      names of the web configuration file and what they are in OpenSSL
source      the file's texts with their lines
config      the same names with checks: the value that the door gets
tls         certificates and keys -> a TLS context
peer        the names in a client's certificate
door        the configuration in force, renewed when a file changes
passwords   bcrypt off the event loop
pace        the rate limit
origin      which writes a browser may send
body        request bodies, bounded
guard       all of it around the application

It must not know routes, save those of the probes.
"""
