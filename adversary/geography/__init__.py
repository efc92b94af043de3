"""Where counts are published: spines, off-spine entities, the optimised spine and its bypass."""
