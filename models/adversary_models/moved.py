"""A move between two blocks: an example of an own declaration with two counts that move in opposite directions."""

from adversary import Prior, measured, scenario


@scenario(target="moved", source="worked example")
def moved(release, *, known_here=0, known_there=0, moved=Prior("Bernoulli", p=0.2)):
    """Has the target, who is counted in one of two blocks, moved from here to there?

    Both noisy counts speak: log-odds gain = (b - a) / sigma^2 with a, b the two noisy counts less those known.
    """
    measured(release["here"], known_here + 1 - moved)
    measured(release["there"], known_there + moved)
