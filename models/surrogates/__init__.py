"""Learners that predict a loss curve without computing a gradient, fitted to pilot runs of one workload.

Nothing here knows torch. `learner` carries a model of training through the learner seam, so that everything an
engine does to a copy of the model (staleness, copy-back, averages, own replicas) happens to the surrogate's state.
"""
