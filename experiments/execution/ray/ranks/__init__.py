"""Worker groups: several ranks a pack, in a pool of processes that stays up."""
