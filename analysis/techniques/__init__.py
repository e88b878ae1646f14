"""Which techniques and optimizers extend perfect scaling: curves against plain ones, tested."""
