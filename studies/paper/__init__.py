"""The reproduction of arXiv:2004.08771: its servers, data sets and algorithms simulated, beside what it published."""
