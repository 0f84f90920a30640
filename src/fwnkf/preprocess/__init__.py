"""Preprocessing of raw samples for particular sensors, one kind a file. Importing this package registers them all."""
