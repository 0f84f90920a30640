"""Inertial navigation with GNSS on public flights and drives: the navigation filter beside truth and autopilots."""
