// Memory of another process, from which the kernel copies: process_vm_readv. It lets a process that has the same user
// and may be debugged, where neither the host's rules (Yama) nor a container's forbid it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hocket {

// A number drawn at random, and where it lies in the memory of who drew it: a process that has it there is that one, or
// its fork, whatever has become of process numbers meanwhile.
struct Beacon {
  uint64_t number;
  const void* address;
};

// Copies `bytes` at `from` in the process `pid`, none or all, and looks for the beacon in the same memory. 0, or what
// errno says: ESRCH where there is no such process any more, or another program in it.
int copy_from_process(pid_t pid, const Beacon& beacon, const std::byte* from, std::byte* to, uint64_t bytes);
// Whether others could copy it: not all that a process can read the kernel copies, such as what a device shows there.
// Looks at its two ends.
bool is_copyable(const std::byte* from, uint64_t bytes);

}  // namespace hocket
