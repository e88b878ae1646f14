"""Short traces for the stacked engine: layers that take all models at once, and simpler graphs."""
