"""Which rank updates which parameters, and with how much of the optimizer's state."""
