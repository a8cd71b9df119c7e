"""The store contract on SQLite."""
