"""What exporters write with: TensorBoard's event files, and a trial as a run of them."""
