#include "transport/tcp/tls.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wait/wait.h"

namespace hocket::tcp {

namespace {

using openssl::BIO;
using openssl::library;

constexpr size_t record = 16 << 10;  // the most bytes of one
constexpr size_t batch = 256 << 10;  // are encrypted, before the socket is asked to take them

// A key that is locked is refused: there may be nobody to ask.
int no_password(char*, int, int, void*) { return 0; }

size_t length(std::span<const iovec> parts) {
  size_t all = 0;
  for (const iovec& part : parts) all += part.iov_len;
  return all;
}

}  // namespace

Credentials::Credentials(const std::string& certificate, const std::string& key, const std::string& authority)
    : context_(library().SSL_CTX_new(library().TLS_method()), library().SSL_CTX_free) {
  const openssl::Library& ssl = library();
  openssl::SSL_CTX* const context = context_.get();
  if (context == nullptr) throw Refusal{"TLS cannot be used: " + openssl::last_error()};
  const auto need = [](long done, const std::string& what) {
    if (done != 1) throw Refusal{what + ": " + openssl::last_error()};
  };
  ssl.ERR_clear_error();
  need(ssl.SSL_CTX_ctrl(context, openssl::ctrl_set_min_proto_version, openssl::tls1_3_version, nullptr),
       "this OpenSSL has no TLS 1.3");
  need(ssl.SSL_CTX_set_ciphersuites(context,
                                    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"),
       "this OpenSSL has no cipher for TLS 1.3");
  ssl.SSL_CTX_set_num_tickets(context, 0);  // nobody comes twice
  ssl.SSL_CTX_set_default_passwd_cb(context, no_password);
  need(ssl.SSL_CTX_use_certificate_chain_file(context, certificate.c_str()),
       "the certificate " + certificate + " cannot be used");
  need(ssl.SSL_CTX_use_PrivateKey_file(context, key.c_str(), openssl::filetype_pem),
       "the key " + key + " cannot be used with the certificate " + certificate);
  need(ssl.SSL_CTX_load_verify_locations(context, authority.c_str(), nullptr),
       "the authority's certificate " + authority + " cannot be used");
  ssl.SSL_CTX_set_verify(context, openssl::verify_peer | openssl::verify_fail_if_no_peer_cert, nullptr);
}

Tls::Tls(const Credentials& credentials, int socket, Role role)
    : Pipe(socket), ssl_(library().SSL_new(credentials.context())) {
  const openssl::Library& ssl = library();
  BIO* const bio = ssl.BIO_new(method());
  if (ssl_ == nullptr || bio == nullptr) throw Refusal{"TLS cannot be used: " + openssl::last_error()};
  ssl.BIO_set_data(bio, this);
  ssl.BIO_set_init(bio, 1);
  ssl.SSL_set_bio(ssl_, bio, bio);
  (role == Role::caller ? ssl.SSL_set_connect_state : ssl.SSL_set_accept_state)(ssl_);
}

Tls::~Tls() { library().SSL_free(ssl_); }

// ---- what OpenSSL sees of the socket --------------------------------------------------------------------------------

const openssl::BIO_METHOD* Tls::method() {
  static const openssl::BIO_METHOD* const made = [] {
    const openssl::Library& ssl = library();
    openssl::BIO_METHOD* const all = ssl.BIO_meth_new(openssl::bio_type_source_sink | 120, "hocket");
    ssl.BIO_meth_set_write(all, write_bio);
    ssl.BIO_meth_set_read(all, read_bio);
    ssl.BIO_meth_set_ctrl(all, control_bio);
    return all;
  }();
  return made;
}

int Tls::write_bio(BIO* bio, const char* data, int bytes) {
  Tls& self = *static_cast<Tls*>(library().BIO_get_data(bio));
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  self.out_.insert(self.out_.end(), begin, begin + bytes);
  return bytes;
}

// As much as OpenSSL asks for, or, once we read ahead, as much as there is.
int Tls::read_bio(BIO* bio, char* data, int bytes) {
  Tls& self = *static_cast<Tls*>(library().BIO_get_data(bio));
  library().BIO_clear_flags(bio, openssl::bio_flags_read | openssl::bio_flags_should_retry);
  if (self.in_read_ == self.in_end_) {
    const bool ahead = !self.in_.empty();
    const ssize_t n = recv(self.socket_, ahead ? reinterpret_cast<char*>(self.in_.data()) : data,
                           ahead ? self.in_.size() : static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      library().BIO_set_flags(bio, openssl::bio_flags_read | openssl::bio_flags_should_retry);
      return -1;
    }
    self.ended_ = n <= 0;
    self.cut_ |= n < 0 && is_cut(errno);
    if (n <= 0 || !ahead) return static_cast<int>(n);
    self.in_read_ = 0;
    self.in_end_ = static_cast<size_t>(n);
  }
  const size_t taken = std::min(static_cast<size_t>(bytes), self.in_end_ - self.in_read_);
  std::memcpy(data, self.in_.data() + self.in_read_, taken);
  self.in_read_ += taken;
  return static_cast<int>(taken);
}

long Tls::control_bio(BIO*, int command, long, void*) { return command == openssl::bio_ctrl_flush ? 1 : 0; }

void Tls::read_ahead() {
  const std::lock_guard lock(lock_);
  in_.resize(batch);
}

// ---- the two streams ------------------------------------------------------------------------------------------------

bool Tls::flush() {
  const std::lock_guard lock(lock_);
  return flushed();
}

bool Tls::flushed() {
  while (out_sent_ != out_.size()) {
    const ssize_t n = ::send(socket_, out_.data() + out_sent_, out_.size() - out_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      cut_ |= is_cut(errno);
      return false;
    }
    out_sent_ += static_cast<size_t>(n);
  }
  out_.clear();
  out_sent_ = 0;
  return true;
}

ssize_t Tls::failed(int result) {
  const openssl::Library& ssl = library();
  const int error = ssl.SSL_get_error(ssl_, result);
  if (error == openssl::error_want_read || error == openssl::error_want_write) {
    flushed();  // a part of the handshake
    errno = EAGAIN;
    return -1;
  }
  if (error == openssl::error_zero_return || (ended_ && !cut_)) return 0;
  if (ended_) {
    errno = ETIMEDOUT;
    return -1;
  }
  why_ = openssl::last_error();
  if (const long verdict = ssl.SSL_get_verify_result(ssl_); verdict != 0)
    why_ += std::string(", ") + ssl.X509_verify_cert_error_string(verdict);
  flushed();  // it may have told the other end why
  errno = EPROTO;
  return -1;
}

ssize_t Tls::send(std::span<iovec> parts) {
  const std::lock_guard lock(lock_);
  const openssl::Library& ssl = library();
  if (!flushed()) return -1;
  const size_t all = std::min(length(parts), batch);
  size_t taken = 0, part = 0, at = 0;
  gathered_.resize(record);
  while (taken < all) {
    // Whole records straight from where they lie, and what is shorter together with what follows.
    while (at == parts[part].iov_len) ++part, at = 0;
    const auto* data = static_cast<const std::byte*>(parts[part].iov_base) + at;
    size_t bytes = std::min(parts[part].iov_len - at, record);
    size_t next = part, next_at = at + bytes;
    if (bytes < record) {
      for (std::memcpy(gathered_.data(), data, bytes); bytes < record && next + 1 < parts.size();) {
        ++next;
        next_at = std::min(parts[next].iov_len, record - bytes);
        std::memcpy(gathered_.data() + bytes, parts[next].iov_base, next_at);
        bytes += next_at;
      }
      data = gathered_.data();
    }
    ssl.ERR_clear_error();
    const int n = ssl.SSL_write(ssl_, data, static_cast<int>(bytes));
    if (n <= 0) {
      if (taken != 0) break;
      if (failed(n) == 0) errno = EPIPE;
      return -1;
    }
    taken += bytes;
    part = next;
    at = next_at;
  }
  flushed();
  return static_cast<ssize_t>(taken);
}

ssize_t Tls::receive(std::span<iovec> parts) {
  const std::lock_guard lock(lock_);
  const openssl::Library& ssl = library();
  size_t taken = 0;
  for (const iovec& part : parts) {
    for (size_t at = 0; at < part.iov_len;) {
      ssl.ERR_clear_error();
      const int most = static_cast<int>(std::min<size_t>(part.iov_len - at, 1 << 30));
      const int n = ssl.SSL_read(ssl_, static_cast<std::byte*>(part.iov_base) + at, most);
      if (n <= 0) return taken != 0 ? static_cast<ssize_t>(taken) : failed(n);
      at += static_cast<size_t>(n);
      taken += static_cast<size_t>(n);
    }
  }
  return static_cast<ssize_t>(taken);
}

void Tls::shut() {
  {
    const std::lock_guard lock(lock_);
    library().SSL_shutdown(ssl_);
    flushed();
  }
  Pipe::shut();
}

}  // namespace hocket::tcp
