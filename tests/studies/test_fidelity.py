"""The fidelity study: configurations never meet the pilots, and scores of curves with known errors."""

import math

import numpy as np
import pytest

from hetsgd.models.policies import POLICIES
from hetsgd.models.surrogates.calibration import Calibration
from hetsgd.models.surrogates.calibration_file import SHIPPED, load_calibration
from hetsgd.models.surrogates.one_step import GradientStatistics
from hetsgd.studies import fidelity_configurations
from hetsgd.studies.fidelity_configurations import Configuration, draw
from hetsgd.studies.fidelity_score import Score, quantile, ranking, score
from hetsgd.studies.pilots import PILOT_SEED, plan_pilots


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return load_calibration(SHIPPED / "quickstart.json")


def test_the_generator_draws_the_same_configurations_for_a_seed_and_others_for_another(
    calibration: Calibration,
) -> None:
    drawn = draw(20, 1, {"quickstart": calibration})
    assert drawn == draw(20, 1, {"quickstart": calibration})
    assert not {item.key for item in drawn} & {item.key for item in draw(20, 2, {"quickstart": calibration})}
    assert {item.policy for item in drawn} <= set(POLICIES)
    assert len({item.policy for item in drawn}) >= 5
    assert len({item.machine for item in drawn}) == 2


def test_held_out_configurations_and_their_seeds_never_meet_the_pilots(calibration: Calibration) -> None:
    pilots = plan_pilots(calibration.statistics[0], 2000)
    for item in draw(200, 1, {"quickstart": calibration}):
        given = dict(item.settings)
        for pilot in pilots:
            same_lanes = dict(pilot.settings)["machine.cpu_lanes"] == given["machine.cpu_lanes"]
            same_rate = math.isclose(pilot.rate, given["run.learning_rate"], rel_tol=1e-9)
            assert not (pilot.policy == item.policy and same_lanes and same_rate), item.words()
    seeds = {seed for pilot in calibration.pilots for seed in pilot.seeds}
    assert min(seeds) >= PILOT_SEED
    with pytest.raises(ValueError, match="belongs to the pilots"):
        draw(1, 1, {"quickstart": calibration}, used=range(PILOT_SEED, PILOT_SEED + 2))


def test_pilots_are_serial_at_three_batches_and_asynchronous_and_stay_below_the_limit() -> None:
    first = GradientStatistics(loss=1.0, squared_norm=1.0, bend=1.0, noise=1.0, noise_bend=1.0, curvature=2.0,
                               row_curvature=20.0)  # fmt: skip
    pilots = plan_pilots(first, 1000)
    serial = [pilot for pilot in pilots if dict(pilot.settings)["machine.cpu_lanes"] == 1]
    assert {pilot.batch for pilot in serial} == {1, 16, 256}
    assert len({(pilot.batch, pilot.rate) for pilot in serial}) == 6
    assert len(pilots) - len(serial) == 3
    assert all(pilot.rate < 1.0 for pilot in pilots)


TIMES = [0.0, 1.0, 2.0, 3.0, 4.0]
FALL = np.array([1.0, 0.8, 0.6, 0.4, 0.2])


def configuration(rate: float = 0.1) -> Configuration:
    settings = (("machine.cpu_lanes", 2), ("run.learning_rate", rate))
    return Configuration(workload="w", machine="m", policy="hogwild", settings=settings, updates=10)


def scored(predicted: np.ndarray[tuple[int], np.dtype[np.float64]], truth: list[float], rate: float = 0.1) -> Score:
    replays = [FALL * factor for factor in truth]
    return score(configuration(rate), TIMES, replays, predicted, predicted * 0.9, predicted * 1.1)


def test_a_prediction_that_is_right_has_no_error_and_covers_the_replays() -> None:
    found = scored(FALL, [1.0, 1.0])
    assert max(found.errors.values()) == pytest.approx(0.0, abs=1e-12)
    assert found.rms == 0.0
    assert found.covered == 1.0
    assert max(found.floors) == pytest.approx(0.0, abs=1e-12)


def test_a_prediction_that_is_late_is_off_by_its_delay_and_one_that_never_arrives_without_end() -> None:
    late = np.interp(np.array(TIMES) / 1.25, TIMES, FALL)
    assert scored(late, [1.0, 1.0]).errors[0.5] == pytest.approx(0.25)
    assert scored(np.ones(5), [1.0, 1.0]).errors[0.5] == math.inf
    assert quantile([0.1, math.inf, 0.2, math.inf], 0.9) == math.inf


def test_the_floor_is_one_replay_against_the_others() -> None:
    found = scored(FALL, [1.0, 1.1])
    assert found.floor_rms == pytest.approx(math.log(1.1))


def test_a_ranking_counts_only_pairs_that_replays_tell_apart() -> None:
    fast = np.interp(np.array(TIMES) * 2.0, TIMES, FALL)

    def at(truth_is_fast: bool, predicted_fast: bool) -> Score:
        truth = fast if truth_is_fast else FALL
        predicted = fast if predicted_fast else FALL
        return score(configuration(), TIMES, [truth, truth], predicted, predicted, predicted)

    assert ranking([at(True, True), at(False, False)]) == (1.0, 1)
    assert ranking([at(True, False), at(False, True)]) == (-1.0, 1)
    assert ranking([at(True, True), at(True, False)])[1] == 0


def test_every_data_set_of_the_study_has_a_small_net() -> None:
    assert set(fidelity_configurations.SETS) == {"quickstart", "w8a", "letter", "mnist10k"}
