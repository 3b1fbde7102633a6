"""What other libraries call what a group has: for who looks for it here.

It is added to an error that ends the program, and not said by the group itself: a class that answers for names that it
does not have is slower to ask for those that it has.
"""

from __future__ import annotations

NAMES = {
    # mpi4py
    "Get_rank": "rank",
    "Get_size": "size",
    "Bcast": "broadcast",
    "bcast": "broadcast_object",
    "Allreduce": "all_reduce",
    "allreduce": "all_reduce",
    "Reduce": "reduce",
    "Scatterv": "scatter",
    "Scatter": "scatter",
    "Gatherv": "gather",
    "Gather": "gather",
    "Allgatherv": "all_gather",
    "Allgather": "all_gather",
    "allgather": "all_gather_object",
    "Reduce_scatter": "reduce_scatter",
    "Reduce_scatter_block": "reduce_scatter",
    "Alltoallv": "all_to_all",
    "Alltoall": "all_to_all",
    "alltoall": "all_to_all",
    "Scan": "scan",
    "Exscan": "exscan",
    "Barrier": "barrier",
    "Send": "send",
    "Recv": "recv",
    "Isend": "send(..., async_op=True)",
    "isend": "send(..., async_op=True)",
    "Irecv": "recv(..., async_op=True)",
    "irecv": "recv(..., async_op=True)",
    "Sendrecv": "sendrecv",
    "Probe": "probe",
    "Iprobe": "iprobe",
    "Iallreduce": "all_reduce(..., async_op=True)",
    "Ibcast": "broadcast(..., async_op=True)",
    "Ibarrier": "barrier(async_op=True)",
    "Split": "split",
    "Create_group": "subgroup",
    "Free": "close",
    # torch.distributed
    "get_rank": "rank",
    "get_world_size": "size",
    "world_size": "size",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast_object_list": "broadcast_object",
    "new_group": "subgroup",
    "destroy_process_group": "close",
}


def hint(error: AttributeError) -> str:
    """The end of a message, where a group was asked for a name of another library's; else empty."""
    kind = type(error.obj)
    is_group = (kind.__module__, kind.__name__) == ("hocket.group", "Group")
    return f"; what you look for is group.{NAMES[error.name]} here" if is_group and error.name in NAMES else ""
