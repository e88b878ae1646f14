"""How it is trained and swept.

plan, enlarged, search/, identity      a study with its search, its trials; what their ids hash
optimizers/, schedules/                the training algorithms by name
config/, files/                        the experiment file: read, checked, turned into studies
training/, engines/                    how a pack is trained, evaluation by evaluation
scheduling/, execution/, records/      the sweep: what is missing, in packs, on workers, with Ray
"""
