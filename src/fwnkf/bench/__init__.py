"""Benchmarks that users run: one row for one filter, the reference ladder beside it, and runs side by side."""
