"""Longer campaigns than the suite's.

python -m tests.distributed strangers 20000   # connections to the ports of a running job
python -m tests.distributed kills 500         # workers of DataLoaders, at random moments
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.distributed.test_strangers import attacked_job
from tests.io.test_worker_failures import kill_workers


def main(what: str, count: str) -> None:
    if what == "strangers":
        with tempfile.TemporaryDirectory() as folder:
            met = attacked_job(Path(folder), int(count))
        print(f"the job completed; {met.count} connections to {len(met.met)} ports")
    elif what == "kills":
        kill_workers(int(count))
        print(f"{count} workers killed: each time an error that says so, or all batches")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
