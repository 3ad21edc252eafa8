"""Plugin registry: kinds of plugins, discovery, and schemas read from class signatures with `ast`.

Why our own reader: `inspect.signature` needs the class, so it would import every plugin, and torch with it, to list them;
a broken plugin would hide the others, and help would run a stranger's code. Griffe parses without importing too, but
leaves types and defaults as expressions, whose evaluation is most of this room.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
