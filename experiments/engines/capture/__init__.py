"""Steps of a stack that a GPU replays by itself: CUDA graphs of whole training steps."""
