"""Callbacks for programs of other libraries, which report to a sweep; each imports its library."""
