"""The experiment file: read, checked, and turned into plans of studies. Trains nothing."""
