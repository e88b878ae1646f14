"""Techniques that regularize: noise, decay, and softer targets."""
