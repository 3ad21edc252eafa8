"""Plugin registry: kinds of plugins, discovery, and schemas read from class signatures with `ast`.

Why our own reader: `inspect.signature` needs the class, so listing plugins would import all of them, and torch with
them; a broken plugin would hide the others, and help would run a stranger's code.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
