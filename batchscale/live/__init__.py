"""The live page of a sweep: `watch` computes what is on it, `server` serves it."""
