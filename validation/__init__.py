"""How far the intervals can be trusted: simulations with a known answer, written to docs/truth.md.

``python -m validation [PART …]`` runs the parts (``__main__``). Each counts in a module of its own,
keeps its counts in docs/truth/ and writes its section of the page (``page``) from them:

- ``coverage``: table 1, curves that are knees, on grids that reach both regimes, one, or none;
- ``outside``: table 2, curves that are not knees with perfect scaling;
- ``searches``: table 3, whole searches of the response surface of ``surface``;
- ``quadratic``: exact curves of the noisy quadratic model, ``nqm``;
- ``goldens``: published curves, and where their authors say that the regimes lie;
- ``overlay``: published and packaged curves in two pictures.

Shared modules: ``exact`` computes the quantities of any curve from their definitions, ``tally``
counts coverage and claims of intervals, ``packaged`` has the packaged curves with their regimes,
and ``simulate`` draws curves of one cell for tests and docs/pictures.py. ``package_published`` and
``package_own`` make the packaged data.
"""
