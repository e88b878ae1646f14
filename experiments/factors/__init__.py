"""Factors of the training algorithm that the grid sweeps beside techniques: batch-size schedules
(``ramp``) and rules that derive metaparameters from those of another batch size (``rule``)."""
