"""Logs as people have them: tables of numbers in CSV and Parquet files, parsed and never executed."""

from .table import Table, find_tables, read_table

__all__ = ["Table", "find_tables", "read_table"]
