"""A user's own program as what a trial trains.

An experiment file has ``program: COMMAND`` in the place of ``workload: NAME``. What a trial of a
program has in common with a pack of an engine is ``experiments.execution.trainer.Trainer``: the
worker claims, commits, reports and stops it in the same lines. The cut is as small as that:

1. *Planned.* The workload is a ``Program`` (``workloads.user_code.program``): it has a name, fields
   (the ``{names}`` of the command that are in the grid) and an identity, and neither data nor
   model. It is itself the ``spec`` by which workers load it. ``algorithm`` has the optimizer, whose
   arguments are the other ``{names}``, which the search gives, and a schedule without arguments. So
   grid, search, rounds, tables of points, identities and records are those of every other study.
   ``config.program_grid`` checks what the file says, ``parse`` its program.
2. *Trained.* ``training.ProgramTraining`` is the pack of one trial. There is no evaluation grid:
   what the program reports are the evaluations. The stopping rules are those of
   ``experiments.training.stopping``, asked at each of them.
3. *Run.* ``process.Process`` reads what the program reports. Between both is ``guard``, a small
   process that starts the program in a process group of its own, keeps its output, bounded, and
   ends all its processes when it is told, when the program ends, or when its worker dies.
4. *Resumed.* The trial's folder, ``RESULTS/programs/TRIAL``, holds the program's checkpoints
   (``{folder}``), its output, ``measurements.jsonl``: what it has reported, and who runs it: the
   next worker waits until a dead one's program has ended. With ``resume`` a trial goes on from
   there, in any later run, and nothing there is ever deleted: it begins again only if it had
   neither reported nor written a file. Without, it begins again in an empty folder.

Decided: a *measurement* is a report with the target's metric; other reports of the same step add
theirs. The first report of a step counts. A target's metric, or a metric whose name ends in
``loss``, that is not finite is a divergence. Step 0 is no evaluation. A program that ends by itself
before its budget is an error, unless its next report would have been beyond the budget. A hit
counts up to the budget. ``python`` as the first word is the interpreter that runs batchscale.
A ``{seed}`` has 31 bits. ``{budget}`` in a command is part of the identity (a schedule may end
there); the program is ended at its budget in any case.

A worker of a cluster runs it in the folder of the experiment file, if that is the same on its
machine, and else in a copy of what the experiment names. It has the GPUs of ``devices``, all on one
machine unless ``nodes`` says otherwise. Where its machine does not reach the results folder, trials
have a temporary folder of that machine, and go on only there.

A branch of a trial (``branches``) is its program, resumed from a copy of its folder with a larger
batch size.

A function of a file is the program ``python -P -m batchscale.function FILE:NAME NAME=VALUE …``.

With ``nodes`` a trial has a worker on each of several machines (``nodes``): the first one's is in
charge, the parts meet by the variables of torch.distributed and torchrun. A program that is silent
for much longer than ever before, after its first report, hangs, and is an error.
"""
