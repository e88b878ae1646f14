"""Helpers of exporters: TensorBoard's event files, and a trial as a run."""
