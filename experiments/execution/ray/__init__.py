"""Trains packs on Ray: connecting to one, placing packs through Tune, talking with the workers."""
