"""Text: token streams, where text comes from, and the packaged language models."""
