"""The torch engine: CPU lanes and accelerators, calibration, tracing of modules, and the replay learner.

May import ``hetsgd.models``, torch and numpy; nothing from ``hetsgd.sim`` or ``hetsgd.studies``. The only
folder that imports torch.
"""
