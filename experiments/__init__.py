"""How it is trained and swept.

plan, space, search, identity, seeds   what a study, a trial, a pack is; points, ids, random streams
optimizers/, schedules/                the training algorithms by name
config/, files/                        the experiment file: read, checked, turned into plans
training/, engines/                    how a pack is trained, evaluation by evaluation
scheduling/, execution/, records/      the sweep: what is missing, in packs, on workers, with Ray
"""
