"""The gradient noise scale that sweeps have recorded."""
