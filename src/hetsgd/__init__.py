"""A laboratory for heterogeneous CPU+GPU stochastic gradient descent.

The public names live in ``hetsgd.models``, ``hetsgd.sim``, ``hetsgd.real`` and ``hetsgd.studies``. The
names a script or notebook needs most are offered here as well and loaded on first use (PEP 562), so that
``import hetsgd`` stays instant and a timing-only simulation never loads torch or the plotting libraries.

In ten lines, a policy on a machine, simulated with real gradients and then trained for real::

    import hetsgd as h

    loaded = h.load_workload("quickstart")
    plan = h.Plan(
        machine=h.load_machine("local"), workload=loaded.workload, policy="minibatch",
        recipe=h.recipe("minibatch", accelerator_batch=256),
        run=h.RunSettings(stop=h.StopRule(epochs=1), learning_rate=0.1),
    )
    simulated = h.simulate(plan, h.ReplayLearner(plan, loaded.data()))
    trained = h.train(plan, loaded.data())
    for trace in (simulated, trained.trace):
        print(h.metrics(trace, plan=plan).last_train)

>>> import hetsgd
>>> hetsgd.__version__
'0.1.0'
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

__version__: Final = "0.1.0"

# Public name -> module that defines it (`module:attribute` where its name there is another). Type checkers do not
# follow this table: annotate with the name imported from its own module.
_HOME: Final[dict[str, str]] = {
    "Accelerator": "hetsgd.models.machine",
    "Dataset": "hetsgd.models.data.dataset",
    "Link": "hetsgd.models.machine",
    "LossReference": "hetsgd.models.loss_curve",
    "Machine": "hetsgd.models.machine",
    "NoLearner": "hetsgd.models.learner",
    "Plan": "hetsgd.models.plan",
    "ReplayLearner": "hetsgd.real.replay",
    "RunSettings": "hetsgd.models.run",
    "Socket": "hetsgd.models.machine",
    "StopRule": "hetsgd.models.run",
    "Trace": "hetsgd.models.trace",
    "Workload": "hetsgd.models.workload",
    "frame": "hetsgd.studies.trace_store",
    "load_dataset": "hetsgd.models.data.catalogue:load",
    "load_machine": "hetsgd.models.machine_file",
    "load_workload": "hetsgd.models.workload_file",
    "metrics": "hetsgd.models.metrics",
    "module_workload": "hetsgd.real.module_workload",
    "read_run": "hetsgd.studies.record",
    "recipe": "hetsgd.models.policies",
    "simulate": "hetsgd.sim",
    "train": "hetsgd.real",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use and remember it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hetsgd' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    value: object = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not, so that completion in a notebook shows them and nothing else."""
    return sorted({*_HOME, "__doc__", "__version__"})
