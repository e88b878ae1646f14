"""The page of a sweep that runs: what it shows (`watch`), and how it is served (`server`)."""
