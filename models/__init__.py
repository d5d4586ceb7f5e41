"""What both engines share: policies, coordinator, trace, metrics, machine, workload, cost, data, surrogates.

May import the standard library, numpy, scipy, networkx, and pydantic in ``*_file.py`` modules; nothing from
``hetsgd.sim``, ``hetsgd.real`` or ``hetsgd.studies``.
"""
