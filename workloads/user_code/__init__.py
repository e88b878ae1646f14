"""Workloads in a user's own files: how they are imported, and what identifies their source."""
