"""Names and descriptions of the known data sets; imports nothing heavy, so that listing stays instant."""

DESCRIPTIONS: dict[str, str] = {
    "covtype-sample": "10 % of Forest Covertype, embedded: 58,101 x 54, class 2 (lodgepole pine) against the rest",
    "covtype": "Forest Covertype: 581,012 x 54, class 2 (lodgepole pine) against the rest; "
    "the embedded sample where the full set is not at hand",
    "w8a": "web pages (Platt 1998), training part: 49,749 x 300 binary features, 2 classes",
    "delicious": "bookmarks and their tags (Mulan): 16,105 x 500 binary features, 983 labels (multi-label)",
    "real-sim": "newsgroup articles, real against simulated: 72,309 x 20,958, 0.25 % not zero, 2 classes",
    "a9a": "UCI Adult, binarised: 32,561 x 123 for training, 16,281 for testing, 2 classes",
    "letter": "letter recognition: 20,000 x 16, 26 classes",
    "mnist10k": "handwritten digits, the first 10,000 of MNIST: 10,000 x 784, 10 classes",
    "tmc2007_500": "aviation safety reports (SIAM 2007): 28,596 x 500 binary features, 22 labels (multi-label)",
}
"""Name of each known data set, with one sentence on what it holds."""


def describe() -> list[tuple[str, str]]:
    """The known data sets as (name, description), in catalogue order.

    >>> describe()[0][0]
    'covtype-sample'
    """
    return list(DESCRIPTIONS.items())
