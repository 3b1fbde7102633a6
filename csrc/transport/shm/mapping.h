// Memory files, mapped. In a forked child they are there, but the child's own: what it writes, nobody else sees.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hocket {

// One mapped memory file.
class Mapping {
 public:
  Mapping(int fd, uint64_t bytes);  // throws Failure when the file is shorter than `bytes`
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }

  // Makes whole pages around this memory private, with what they hold now. Other threads of this process may read and
  // write them meanwhile and lose nothing; from then on no other process sees or changes them.
  void detach(const std::byte* begin, uint64_t bytes);

  // Gives whole pages back to the system; they read as zeros then. Not after any were detached.
  void give_back(std::byte* begin, uint64_t bytes);

  // Keeps `fd` for what detaches, and in a child detaches this range at its birth. To be called once, if at all.
  void own(int fd, uint64_t begin, uint64_t bytes);
  // Lets go of the descriptor: nothing is in use there any more.
  void disown();

 private:
  friend struct Family;
  void privatise(uint64_t begin, uint64_t bytes);

  std::byte* data_;
  uint64_t bytes_;
  int fd_ = -1;  // of what is owned
  uint64_t own_begin_ = 0, own_bytes_ = 0;
  Mapping *before_ = nullptr, *after_ = nullptr;  // in the list of those that own something
};

// Has the kernel map these pages in one go, so that who first writes there, or reads, need not wait for each of them.
// Where it cannot, they are mapped then.
void populate(const void* begin, uint64_t bytes, bool write);

// The same for memory that is used from its front on, of which the first `mapped` bytes are: up to `end`, and as much
// again as there was, within reason.
inline constexpr uint64_t mapped_at_once = 128 << 10;
void map_up_to(uint64_t end, const std::byte* memory, uint64_t bytes, uint64_t& mapped, bool write);

// Has the pages of a memory file, whoever touches them first, come from that NUMA node as long as it has some. False
// where the system does not allow it, or has no such node.
bool prefer_node(int fd, uint64_t bytes, int node);

}  // namespace hocket
