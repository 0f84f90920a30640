"""Benchmarks that users run: the reference ladder beside which every figure stands."""
