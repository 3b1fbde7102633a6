// A pipe whose bytes go through UCX. The socket, over which both ends proved themselves, stays: over it goes at first
// where each can be reached, and at last how many bytes were sent; and it shows that the other end's process is gone.
//
//   parts ──send()──▶ pieces ──▶ UCX ┄┄┄▶ UCX ──▶ chunks ──receive()──▶ parts
//
// Bytes that were taken lie in pieces of the pipe's own until UCX is done with them, and those that came lie in UCX's
// memory until they are received: UCX never sees the caller's memory, so nothing of it is read or written later.
//
// UCX does nothing while nobody asks: whatever is called here first has it look around. Each pipe has a worker of its
// own, under one lock: what happens to one of them is no business of the others.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "transport/tcp/pipe.h"
#include "transport/ucx/library.h"

namespace hocket::ucx {

class Pipe final : public tcp::Pipe {
 public:
  // `socket` is connected, non-blocking, and not owned. Throws Refusal where UCX has nothing to offer.
  Pipe(std::shared_ptr<Context> context, int socket);
  ~Pipe() override;

  // Where this end can be reached, for the other one.
  std::string address() const;
  // To who told that address. Whether UCX would tell if the way broke, which both ends must agree on. Throws Refusal
  // where UCX knows no way there.
  bool connect(const std::string& address);
  // Whether a word has gone each way: to be asked until it has, before anything else is sent. Throws Refusal where the
  // way does not come about.
  bool greeted();
  // What the bytes go over, as UCX calls it.
  std::string transports() const;

  ssize_t send(std::span<iovec> parts) override;
  ssize_t receive(std::span<iovec> parts) override;
  bool flush() override;
  std::chrono::microseconds arm() override;
  uint64_t in_flight() const override;
  void shut() override;
  void close() override;

 private:
  static constexpr size_t piece = 64 << 10;
  struct Piece {
    Pipe* pipe;
    bool is_busy = false;
    std::unique_ptr<std::byte[]> data;
  };

  Status reach(const std::string& address, int err_mode);
  static void on_error(void* self, Ep*, Status status);
  static void on_sent(void* request, Status status, void* piece);

  bool is_ours() const;

  // The lock is held.
  unsigned look() { return library_.ucp_worker_progress(worker_); }
  Piece* free_piece();
  bool give(Piece& to, size_t bytes);
  bool take();  // whether there is a chunk
  bool more();  // also one that UCX finds as it looks around
  ssize_t ended();
  void hear();
  void part();
  void destroy();

  const std::shared_ptr<Context> context_;
  const Library& library_;
  const int born_, control_;  // the socket
  mutable std::mutex lock_;   // of what follows
  Worker* worker_ = nullptr;
  Ep* ep_ = nullptr;
  Status error_ = ok;
  std::array<Piece, 8> pieces_;
  int busy_ = 0;
  uint64_t sent_ = 0, received_ = 0;  // bytes
  std::byte* chunk_ = nullptr;
  size_t chunk_bytes_ = 0, chunk_read_ = 0;
  size_t greeted_ = 0;  // bytes of the other end's greeting
  // What the socket told: how many bytes were sent in all, and that nothing more comes.
  std::array<std::byte, sizeof(uint64_t)> end_{};
  size_t end_read_ = 0;
  bool is_over_ = false, is_shut_ = false, is_closed_ = false;
};

}  // namespace hocket::ucx
