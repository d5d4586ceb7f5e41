"""`simulate --replicas`: every seed in one run, and what they share is said."""

from __future__ import annotations

import json
import math

import pytest

from hetsgd.models.run import MOST_SEED, StopRule
from hetsgd.studies.execute import run_simulated
from hetsgd.studies.failure import BadInput
from hetsgd.studies.replicas import check_replicas, run_replicas
from hetsgd.studies.resolve import Ask, Ready, resolve


def ready(**changes: object) -> Ready:
    values: dict[str, object] = {"policy": "hogwild", "stop": StopRule(updates=200), "seed": 3} | changes
    return resolve(Ask(machine="aws-p3.16xlarge", workload="quickstart", **values))  # type: ignore[arg-type]  # keys of Ask


def test_the_record_has_the_losses_of_every_seed_and_says_what_they_share() -> None:
    record = run_replicas(3)(ready(), None).record()
    assert [replica["seed"] for replica in record["replicas"]] == [3, 4, 5]
    last = [replica["loss"][-1]["train"] for replica in record["replicas"]]
    assert len(set(last)) == 3
    assert record["loss"][-1]["train"] == pytest.approx(math.fsum(last) / 3)
    (note,) = [text for text in record["notes"] if "replicas" in text]
    assert "share the order of events and the timing noise of seed 3" in note
    alone = run_simulated(ready()).record()
    assert last[0] == pytest.approx(alone["loss"][-1]["train"], rel=1e-4)
    assert record["elapsed_s"] == alone["elapsed_s"]
    json.dumps(record, allow_nan=False)


def test_what_has_no_replicas_is_refused() -> None:
    with pytest.raises(BadInput, match=r"--replicas: must be in 1..1024, got 0"):
        check_replicas(0, "replay", explain=False)
    with pytest.raises(BadInput, match="only replayed gradients have replicas, got --learner none"):
        check_replicas(2, "none", explain=False)
    with pytest.raises(BadInput, match=r"--seed: 3 replicas have seeds from it on, and the last must be in 0\.\."):
        run_replicas(3)(ready(seed=MOST_SEED - 1), None)
    with pytest.raises(BadInput, match="leave out --explain"):
        check_replicas(2, "replay", explain=True)
    with pytest.raises(BadInput, match="replicas: they must share one order of events, but a target loss"):
        run_replicas(2)(ready(stop=StopRule(updates=200, target_loss=0.1)), None)
