"""`python -m bireme.distributed.launch`."""

import sys

from bireme.distributed.launch.main import main

sys.exit(main())
