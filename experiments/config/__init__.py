"""An experiment file, from its text to the studies that it asks for.

``load`` reads the text (a file of the user's, a packaged one, a mapping or keywords): YAML with the
line of every key (``yaml_lines``), what the file extends and what ``--set`` changes (``inherit``).
The result is plain data. ``schema`` says which keys there are and checks each value that can be
checked by itself; batch sizes and budgets have a notation of their own (``experiments.amounts``).
``compile`` loads what the file names (``grid``: workload, optimizers, schedules, techniques),
resolves what is tuned (``tuning``, ``points``), and forms the combinations of the grid
(``combinations``). Each of them at a batch size (``sized``) is a ``Study`` with its ``Search``
(``experiments.plan``), which draws its trials. The targets must be in the data (``targets``), and
each kind of study is made once (``dry_build``).

Imports run the same way: ``load`` imports ``schema``, ``compile`` imports both. Other packages call
``compile.load``, ``compile.parse`` or ``compile.from_keywords``.
"""
