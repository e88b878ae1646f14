"""What a running sweep keeps beside the dataset: claims, checkpoints, processes."""
