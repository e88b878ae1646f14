"""Helpers of exporters: TensorBoard's event files."""
