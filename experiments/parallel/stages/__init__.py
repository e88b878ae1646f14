"""How a model is cut into pipeline stages, and how these train."""
