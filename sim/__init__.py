"""The SimPy engine: workers, memory and links of a machine as processes and resources in virtual time.

May import ``hetsgd.models``, simpy and numpy; nothing from ``hetsgd.real`` or ``hetsgd.studies``. The only
folder that imports simpy.
"""
