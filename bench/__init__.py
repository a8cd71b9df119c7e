"""The benchmark: `python -m bench --help`."""
