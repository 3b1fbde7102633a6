#include "transport/ucx/pipe.h"

#include <sched.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>

#include "wait/fork.h"
#include "wait/signals.h"
#include "wait/wait.h"

namespace hocket::ucx {

namespace {

constexpr std::string_view greeting = "hocket/1";
constexpr std::chrono::microseconds soon{100};  // where UCX cannot tell when something will happen
constexpr int tries = 8;                        // to be told
constexpr std::chrono::seconds farewell{1};     // what was sent may take so long to arrive

ssize_t lost() {
  errno = ECONNRESET;
  return -1;
}

// UCX does not write to the program's output meanwhile, unless a user has it say more than it would.
class Silence {
 public:
  explicit Silence(const Library& library) : library_(library) {
    std::array<char, 64> level{};
    if (library_.ucs_global_opts_get_value("LOG_LEVEL", level.data(), level.size()) != ok) return;
    is_usual_ = strcasecmp(level.data(), "warn") == 0;
    if (is_usual_) library_.ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  }
  ~Silence() {
    if (is_usual_) library_.ucs_global_opts_set_value("LOG_LEVEL", "warn");
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  const Library& library_;
  bool is_usual_ = false;
};

}  // namespace

Pipe::Pipe(std::shared_ptr<Context> context, int socket)
    : tcp::Pipe(epoll_create1(EPOLL_CLOEXEC)),
      context_(std::move(context)),
      library_(context_->library()),
      born_(forks()),
      control_(socket) {
  const NoSignals none;
  const auto need = [this](Status done, const char* what) {
    if (done == ok) return;
    destroy();
    throw Refusal{std::string("UCX ") + what + ": " + library_.ucs_status_string(done)};
  };
  WorkerParams params{WorkerParams::has_thread_mode, WorkerParams::serialized};
  need(library_.ucp_worker_create(context_->handle(), &params, &worker_), "has nothing that can be used here");
  int wakes = -1;
  need(library_.ucp_worker_get_efd(worker_, &wakes), "cannot wake who waits for it");
  for (const int fd : {wakes, control_}) {
    epoll_event event{EPOLLIN, {}};
    if (epoll_ctl(this->socket(), EPOLL_CTL_ADD, fd, &event) != 0) {
      const std::string why = std::strerror(errno);
      destroy();
      throw Refusal{"UCX cannot be waited for: " + why};
    }
  }
}

Pipe::~Pipe() { close(); }

std::string Pipe::address() const {
  const std::lock_guard lock(lock_);
  WorkerAttributes found{};
  found.fields = WorkerAttributes::has_address;
  if (const Status done = library_.ucp_worker_query(worker_, &found); done != ok)
    throw Refusal{std::string("UCX cannot tell where this rank is: ") + library_.ucs_status_string(done)};
  std::string all(reinterpret_cast<const char*>(found.address), found.address_length);
  library_.ucp_worker_release_address(worker_, found.address);
  return all;
}

// Ways between hosts tell when they break. Shared memory does not, and is asked for only where there is nothing else.
bool Pipe::connect(const std::string& address) {
  const std::lock_guard lock(lock_);
  const NoSignals none;
  const Silence silence(library_);
  const bool tells = reach(address, EpParams::peer) == ok;
  if (!tells) {
    if (const Status done = reach(address, EpParams::none); done != ok)
      throw Refusal{std::string("UCX knows no way there without TCP, which it is not given (") +
                    library_.ucs_status_string(done) + "; UCX_LOG_LEVEL=error has it say more)"};
  }
  Piece* const first = free_piece();
  std::memcpy(first->data.get(), greeting.data(), greeting.size());
  give(*first, greeting.size());
  sent_ = 0;
  return tells;
}

Status Pipe::reach(const std::string& address, int err_mode) {
  EpParams params{};
  params.fields = EpParams::has_address | EpParams::has_err_mode | EpParams::has_err_handler;
  params.address = address.data();
  params.err_mode = err_mode;
  params.on_error = on_error;
  params.user_data = this;
  const Status done = library_.ucp_ep_create(worker_, &params, &ep_);
  if (done != ok) ep_ = nullptr;
  return done;
}

bool Pipe::greeted() {
  const std::lock_guard lock(lock_);
  while (greeted_ != greeting.size() && more()) {
    const size_t bytes = std::min(greeting.size() - greeted_, chunk_bytes_ - chunk_read_);
    if (std::memcmp(chunk_ + chunk_read_, greeting.data() + greeted_, bytes) != 0)
      throw Refusal{"UCX brought something else than a rank's greeting"};
    chunk_read_ += bytes;
    greeted_ += bytes;
  }
  look();
  if (error_ != ok) throw Refusal{std::string("the way through UCX broke: ") + library_.ucs_status_string(error_)};
  return greeted_ == greeting.size() && busy_ == 0;
}

std::string Pipe::transports() const {
  const std::lock_guard lock(lock_);
  std::array<EpAttributes::Entry, 16> entries{};
  EpAttributes found{};
  found.fields = EpAttributes::has_transports;
  found.entries = entries.data();
  found.count = entries.size();
  found.entry_size = sizeof entries[0];
  if (ep_ == nullptr || library_.ucp_ep_query(ep_, &found) != ok) return "";
  std::set<std::string> names;
  for (unsigned i = 0; i < found.count; ++i) names.insert(entries[i].transport);
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ",") + name;
  return all;
}

// ---- what UCX calls, while it looks around
// ---------------------------------------------------------------------------

void Pipe::on_error(void* self, Ep*, Status status) { static_cast<Pipe*>(self)->error_ = status; }

void Pipe::on_sent(void* request, Status status, void* piece) {
  Piece& sent = *static_cast<Piece*>(piece);
  sent.is_busy = false;
  --sent.pipe->busy_;
  if (status != ok) sent.pipe->error_ = status;
  sent.pipe->library_.ucp_request_free(request);
}

// In a forked child nothing of UCX's is touched, and no lock is taken: all of it is the parent's.
bool Pipe::is_ours() const { return forks() == born_; }

// ---- the two streams ------------------------------------------------------------------------------------------------

Pipe::Piece* Pipe::free_piece() {
  for (int turn = 0; turn < 2; ++turn) {
    for (Piece& each : pieces_) {
      if (each.is_busy) continue;
      each.pipe = this;
      if (!each.data) each.data = std::make_unique_for_overwrite<std::byte[]>(piece);
      return &each;
    }
    look();
  }
  return nullptr;
}

bool Pipe::give(Piece& to, size_t bytes) {
  RequestParams params{};
  params.fields = RequestParams::has_callback | RequestParams::has_user_data;
  params.callback = on_sent;
  params.user_data = &to;
  to.is_busy = true;
  ++busy_;
  void* const result = library_.ucp_stream_send_nbx(ep_, to.data.get(), bytes, &params);
  if (!is_request(result)) {
    to.is_busy = false;
    --busy_;
  }
  if (is_error(result)) error_ = status_of(result);
  sent_ += bytes;
  return !is_error(result);
}

ssize_t Pipe::send(std::span<iovec> parts) {
  if (!is_ours()) return lost();
  const std::lock_guard lock(lock_);
  size_t taken = 0, part = 0, at = 0;
  while (ep_ != nullptr && error_ == ok && part < parts.size()) {
    Piece* const to = free_piece();
    if (to == nullptr) break;
    size_t bytes = 0;
    for (; part < parts.size() && bytes < piece;) {
      const size_t more = std::min(parts[part].iov_len - at, piece - bytes);
      std::memcpy(to->data.get() + bytes, static_cast<const std::byte*>(parts[part].iov_base) + at, more);
      bytes += more;
      at += more;
      if (at == parts[part].iov_len) ++part, at = 0;
    }
    if (!give(*to, bytes)) break;
    taken += bytes;
  }
  if (taken != 0) return static_cast<ssize_t>(taken);
  if (ep_ == nullptr || error_ != ok) return lost();
  errno = EAGAIN;
  return -1;
}

bool Pipe::flush() {
  if (!is_ours()) return true;
  const std::lock_guard lock(lock_);
  if (busy_ != 0) look();
  return busy_ == 0;
}

// UCX tells of whole pieces only.
uint64_t Pipe::in_flight() const {
  if (!is_ours()) return 0;
  const std::lock_guard lock(lock_);
  return ep_ == nullptr || error_ != ok ? 0 : static_cast<uint64_t>(busy_) * piece;
}

bool Pipe::take() {
  if (chunk_ != nullptr && chunk_read_ != chunk_bytes_) return true;
  if (ep_ == nullptr) return false;
  if (chunk_ != nullptr) library_.ucp_stream_data_release(ep_, chunk_);
  chunk_ = nullptr;
  chunk_bytes_ = chunk_read_ = 0;
  void* const found = library_.ucp_stream_recv_data_nb(ep_, &chunk_bytes_);
  if (is_error(found)) error_ = status_of(found);
  if (!is_request(found)) return false;
  chunk_ = static_cast<std::byte*>(found);
  return true;
}

bool Pipe::more() {
  while (!take()) {
    if (ep_ == nullptr || look() == 0) return false;
  }
  return true;
}

ssize_t Pipe::receive(std::span<iovec> parts) {
  if (!is_ours()) return lost();
  const std::lock_guard lock(lock_);
  size_t taken = 0;
  for (size_t part = 0, at = 0; part < parts.size() && more();) {
    const size_t bytes = std::min(parts[part].iov_len - at, chunk_bytes_ - chunk_read_);
    std::memcpy(static_cast<std::byte*>(parts[part].iov_base) + at, chunk_ + chunk_read_, bytes);
    chunk_read_ += bytes;
    at += bytes;
    taken += bytes;
    if (at == parts[part].iov_len) ++part, at = 0;
  }
  received_ += taken;
  return taken != 0 ? static_cast<ssize_t>(taken) : ended();
}

// Nothing is there: what the socket says to that. Who has ended may have sent something just before.
ssize_t Pipe::ended() {
  hear();
  if (is_over_ && more()) {
    errno = EINTR;
    return -1;
  }
  if (ep_ == nullptr || error_ != ok) return lost();
  uint64_t all;
  std::memcpy(&all, end_.data(), sizeof all);
  const bool is_told = end_read_ == end_.size();
  if (is_told ? received_ == all : is_over_) return 0;
  errno = is_told && received_ > all ? EBADMSG : EAGAIN;
  return -1;
}

// What the socket has to say: but for its end, eight bytes in all.
void Pipe::hear() {
  while (!is_over_) {
    std::byte beyond;
    const bool is_told = end_read_ == end_.size();
    const ssize_t n = recv(control_, is_told ? &beyond : end_.data() + end_read_,
                           is_told ? sizeof beyond : end_.size() - end_read_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n > 0 && !is_told) {
      end_read_ += static_cast<size_t>(n);
      continue;
    }
    is_over_ = true;
    epoll_ctl(socket(), EPOLL_CTL_DEL, control_, nullptr);  // it would be ready for ever
  }
}

std::chrono::microseconds Pipe::arm() {
  if (!is_ours()) return {};
  const std::lock_guard lock(lock_);
  for (int turn = 0; turn < tries && ep_ != nullptr && error_ == ok; ++turn) {
    if (more()) return {};
    hear();
    if (is_over_ && end_read_ != end_.size()) return {};
    const Status armed = library_.ucp_worker_arm(worker_);
    if (armed == ok) return busy_ == 0 ? tcp::Pipe::arm() : soon;
    if (armed != busy) break;
  }
  return ep_ == nullptr || error_ != ok ? std::chrono::microseconds{} : soon;
}

// ---- its end --------------------------------------------------------------------------------------------------------

void Pipe::shut() {
  if (!is_ours()) return;
  const std::lock_guard lock(lock_);
  is_shut_ = true;
  ::send(control_, &sent_, sizeof sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(control_, SHUT_WR);
}

void Pipe::close() {
  if (!is_ours()) return;
  const std::lock_guard lock(lock_);
  destroy();
}

void Pipe::destroy() {
  if (worker_ != nullptr) {
    if (ep_ != nullptr) part();
    library_.ucp_worker_destroy(worker_);
  }
  worker_ = nullptr;
  ep_ = nullptr;
  chunk_ = nullptr;
  if (!is_closed_) ::close(socket());
  is_closed_ = true;
}

// Where all is well, what was sent arrives first.
void Pipe::part() {
  if (chunk_ != nullptr) library_.ucp_stream_data_release(ep_, chunk_);
  const bool is_dead = is_over_ && end_read_ != end_.size();
  const bool is_well = is_shut_ && !is_dead && error_ == ok && busy_ == 0;
  RequestParams params{};
  params.fields = RequestParams::has_flags;
  params.flags = is_well ? 0 : RequestParams::force;
  void* const closing = library_.ucp_ep_close_nbx(ep_, &params);
  if (!is_request(closing)) return;
  const auto limit = Clock::now() + farewell;
  while (library_.ucp_request_check_status(closing) == in_progress && Clock::now() < limit) {
    if (look() == 0) sched_yield();
  }
  library_.ucp_request_free(closing);
}

}  // namespace hocket::ucx
