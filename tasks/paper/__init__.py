"""The tables of the FW-NKF paper: filters × data × protocols × weights of the spectral loss × seeds, by one command."""
