"""The accuracy table: one module for each task, with `measure` and `train`."""
