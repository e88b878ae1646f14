"""How far the intervals can be trusted: simulations with a known answer, written to docs/truth.md.

``python -m validation [PART …]`` runs the parts (``__main__``). Each counts in a module of its own,
keeps its counts in docs/truth/ and writes its section of the page (``page``) from them:

- ``shapes``: true curves of many shapes (``true_shapes``), noises and designs;
- ``searches``: whole searches of the response surface of ``surface``;
- ``crossovers``, ``techniques``, ``budgets``: claims about several curves;
- ``quadratic``: exact curves of the noisy quadratic model, ``nqm``;
- ``goldens``: published curves, and where their authors say that the regimes lie;
- ``overlay``: published and packaged curves in two pictures.

Shared modules: ``exact`` computes the quantities of any curve from their definitions, ``tally``
counts what intervals cover, ``packaged`` has the packaged curves with their regimes, and
``simulate`` draws knees. ``package_own`` makes the packaged data of our own.
"""
