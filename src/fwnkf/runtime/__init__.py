"""Running a filter: compiled steps now; streams and export build on the same pure step."""
