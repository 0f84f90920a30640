"""The rules of the verdict: each turns evidence into findings. Thresholds are in :mod:`fwnkf.diagnosis.thresholds`."""
