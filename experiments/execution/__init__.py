"""The sweep: what is missing, in which order, in which packs, on which workers."""
