"""A sweep's trials as runs of other tools: a protocol, what calls it, and a file for each tool."""
