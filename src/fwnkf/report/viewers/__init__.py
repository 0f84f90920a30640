"""Results in the viewers that users have: Rerun, Foxglove and PlotJuggler.

What is shown is described once (:mod:`.scene`), by one module for each command; one module for each viewer writes it.
"""
