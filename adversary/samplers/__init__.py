"""Four roads to the same posterior: exact elimination, the Gibbs reference, PyMC, and trees."""
