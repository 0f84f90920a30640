"""Scoring filters: one row for one filter, its baselines beside it, and training runs compared."""
