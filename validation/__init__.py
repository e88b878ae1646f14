"""How far the intervals can be trusted: simulations with a known answer.

``python -m validation [PART …]`` runs parts. ``scenarios`` lists the simulations: what is drawn,
what is true, the estimator, and how many replicates. ``harness`` runs each of them, keeps its
counts in docs/findings/truth/, and ``page`` puts their tables into docs/findings/truth.md.

Besides: ``quadratic``, exact curves of the noisy quadratic model (``nqm``); ``goldens``, published
curves, and where their authors say that the regimes lie. ``package_own`` makes the packaged data of
our own.
"""
