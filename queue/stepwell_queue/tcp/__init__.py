"""The store over TCP: a server that owns the file, and a client that behaves like the file."""
