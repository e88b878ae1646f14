"""What the results dataset says of a sweep, and the rows that a sweep writes."""
