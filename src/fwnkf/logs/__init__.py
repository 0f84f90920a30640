"""Readers for log files: tables of numbers in CSV and Parquet files."""

from .table import Table, find_tables, read_table

__all__ = ["Table", "find_tables", "read_table"]
