"""Declare an adversary as a PyMC model; get her posterior, the disclosure risk and diagnostics that can be trusted.

The public names are listed one by one in ``__init__.pyi`` and imported when first used, so that neither
``import adversary`` nor a command that does not sample pays for PyMC.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
