"""Inertial navigation on recordings: sensors as one sequence of steps, start, fit, filter, smoother and comparison."""
