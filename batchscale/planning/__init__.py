"""Before anything is trained: how many devices pay, and how many trials a width needs."""
