"""How far the intervals can be trusted: simulations with a known answer, written to docs/truth.md.

``python -m validation [PART …]`` runs the parts; each counts in a module of its own, keeps its
counts in docs/truth/ and writes its section of the page from them.
"""
