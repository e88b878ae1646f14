"""Formats of logs, a file each: what one tool writes, read as a table under that tool's names."""
