"""All-reduce of Open MPI or MPICH, through mpi4py's buffers. See measure.py."""

import re

from measure import run
from mpi4py import MPI

world = MPI.COMM_WORLD
version = MPI.Get_library_version()
name = "Open MPI" if "Open MPI" in version else "MPICH"
number = re.search(r"v?(\d+\.\d+(\.\d+)?)", version)
run(
    f"{name} {number.group(1) if number else ''}".strip(),
    world.Get_rank(),
    world.Get_size(),
    lambda x, y: world.Allreduce(x, y, MPI.SUM),
    world.Barrier,
)
