"""How wide intervals are, and how wide they are expected to be before anything is trained."""
