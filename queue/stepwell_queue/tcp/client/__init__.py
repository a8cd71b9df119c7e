"""The client: implements `Store` on a server."""
