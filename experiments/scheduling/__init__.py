"""What a sweep trains next: pure decisions on the state of its studies."""
