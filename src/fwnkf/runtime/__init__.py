"""Running a filter on a stream of measurements with a compiled step."""
