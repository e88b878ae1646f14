"""Storage of results: local folders and object stores, names of files, and how a file is
written."""
