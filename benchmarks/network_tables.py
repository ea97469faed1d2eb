"""Write analysis/cost_model/networks.json.gz: the operators of every named network
(needs torch).
"""

import gzip
import json

from curvescope.analysis.cost_model.networks import TABLE
from curvescope.profiling.workload.networks import get_network, names
from curvescope.profiling.workload.networks.operations import operations

if __name__ == "__main__":
    tables = {name: operations(get_network(name)) for name in names()}
    with TABLE.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(json.dumps(tables, separators=(",", ":")).encode())
    print(f"{TABLE}: {TABLE.stat().st_size} bytes")
