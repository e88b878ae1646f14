"""What importers share, and the parts of larger ones."""
