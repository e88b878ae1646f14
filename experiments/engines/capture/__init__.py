"""Steps that a GPU replays by itself: CUDA graphs of whole training steps, in both engines."""
