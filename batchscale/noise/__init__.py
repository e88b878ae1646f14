"""The gradient noise scale in anybody's training loop; it imports torch and nothing of ours."""
