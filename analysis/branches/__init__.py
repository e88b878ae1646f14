"""The local critical batch size, along one run, by branches of it at larger batch sizes."""
