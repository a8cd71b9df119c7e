"""Journals outside of the store that wrote them: as files, and replayed against other code."""
