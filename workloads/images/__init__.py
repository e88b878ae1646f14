"""Image workloads: what they share, and those that need more than a file of tensors."""
