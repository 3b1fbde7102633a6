#include "transport/shm/foreign.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hocket {

namespace {

constexpr uint64_t most_at_once = 1 << 30;  // bytes: the kernel copies less than 2 GiB

}  // namespace

// The kernel takes hold of the process's memory once for all parts, and copies them in their order: so where the number
// has come, what came before it is of the same memory.
int copy_from_process(pid_t pid, const Beacon& beacon, const std::byte* from, std::byte* to, uint64_t bytes) {
  for (;;) {
    const uint64_t count = std::min(bytes, most_at_once);
    uint64_t number = 0;
    const iovec here[] = {{to, count}, {&number, sizeof number}};
    const iovec there[] = {{const_cast<std::byte*>(from), count},
                           {const_cast<void*>(beacon.address), sizeof beacon.number}};
    const ssize_t copied = process_vm_readv(pid, here, 2, there, 2, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0 && errno != EFAULT) return errno;
    if (copied < 0 || static_cast<uint64_t>(copied) < count) {  // of another program that address may be nobody's
      return count == 0 || copy_from_process(pid, beacon, nullptr, nullptr, 0) == ESRCH ? ESRCH : EFAULT;
    }
    if (number != beacon.number) return ESRCH;
    bytes -= count;
    if (bytes == 0) return 0;
    from += count;
    to += count;
  }
}

bool is_copyable(const std::byte* from, uint64_t bytes) {
  std::byte ends[2];
  const iovec here{ends, sizeof ends};
  const iovec there[] = {{const_cast<std::byte*>(from), 1}, {const_cast<std::byte*>(from) + bytes - 1, 1}};
  return process_vm_readv(getpid(), &here, 1, there, 2, 0) == sizeof ends;
}

}  // namespace hocket
