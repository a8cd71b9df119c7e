"""Schedules: when they tick, what is stored of them, and who starts their runs."""
