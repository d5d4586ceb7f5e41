"""`--learner surrogate` on the command line: a curve with its interval, without torch."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from hetsgd.studies.execute import run_simulated
from hetsgd.studies.resolve import Ask, resolve
from hetsgd.models.run import StopRule
ask = Ask(machine="ucmerced-k80", workload="quickstart", policy="hogbatch", learner="surrogate", seed=1,
          settings=(("machine.cpu_lanes", 4), ("policy.accelerator_batch", 256), ("run.evaluate_every_s", 1e-4)),
          stop=StopRule(updates=400))
record = run_simulated(resolve(ask)).record()
print(json.dumps({"loss": record["loss"], "surrogate": record["surrogate"], "torch": "torch" in sys.modules,
                  "pandas": "pandas" in sys.modules}))
"""


def test_a_surrogate_run_has_intervals_and_loads_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert not found["torch"]
    assert not found["pandas"]
    assert len(found["loss"]) > 3
    for point in found["loss"]:
        assert point["train_low"] < point["train"] < point["train_high"]
    assert found["loss"][-1]["train"] < found["loss"][0]["train"]
    assert found["surrogate"]["model"] in ("path", "quadratic")
    assert len(found["surrogate"]["pilots"]) >= 9
