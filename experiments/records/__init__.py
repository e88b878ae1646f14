"""What a sweep reads from the results dataset, and the rows that it writes."""
