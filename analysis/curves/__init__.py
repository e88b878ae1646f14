"""Which trials count, and what each batch size gives: the points of a curve."""
