"""Disclosure risk: measures, expectations over releases, inverse problems, ceilings."""
