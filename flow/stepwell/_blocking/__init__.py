"""The app for code that does not run in an event loop: scripts, threads, Django, Flask."""
