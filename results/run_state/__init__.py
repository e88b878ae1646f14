"""Files of a running sweep beside the dataset: claims, checkpoints, processes."""
