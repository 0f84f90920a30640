"""Recordings and simulations as sequences: readers of published sets, their sources, and safe downloads."""
