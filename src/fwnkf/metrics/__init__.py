"""Metrics of estimates: accuracy, consistency, orientation errors, trajectory errors and innovation spectra."""
