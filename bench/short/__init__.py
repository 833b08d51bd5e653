"""Short programs, as people write them first: whole processes of a few seconds, empty caches.

    python -m bench short [--programs gan vae] [--peers bireme paddle] [--rounds 3] [--warm]

Each is written once, as a function of a module `paddle`: Bireme or the wheel.
"""

from __future__ import annotations
