// TLS 1.3 over a socket, by OpenSSL. Both ends show a certificate that the job's authority has signed; whose it is does
// not matter: that it belongs to the job is what the authority vouches for.
//
//   parts ──send()──▶ records ──▶ out_ ──flush()──▶ socket ──▶ in_ ──▶ records ──receive()──▶ parts
//
// Bytes that were taken are encrypted, and lie in `out_` until the socket takes them: nothing of the caller's memory is
// read later. OpenSSL itself never touches the socket.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/tcp/openssl.h"
#include "transport/tcp/pipe.h"

namespace hocket::tcp {

// A rank's certificate and key, and the authority whose certificates it takes, all PEM files.
class Credentials {
 public:
  // Throws Refusal, which names the file that is no good, and why.
  Credentials(const std::string& certificate, const std::string& key, const std::string& authority);
  openssl::SSL_CTX* context() const { return context_.get(); }

 private:
  std::shared_ptr<openssl::SSL_CTX> context_;
};

class Tls final : public Pipe {
 public:
  enum class Role { caller, host };
  Tls(const Credentials& credentials, int socket, Role role);
  ~Tls() override;

  ssize_t send(std::span<iovec> parts) override;
  ssize_t receive(std::span<iovec> parts) override;
  bool flush() override;
  void read_ahead() override;
  void shut() override;

  // Why there is no connection, after an error of EPROTO.
  const std::string& why() const { return why_; }

 private:
  static int write_bio(openssl::BIO* bio, const char* data, int bytes);
  static int read_bio(openssl::BIO* bio, char* data, int bytes);
  static long control_bio(openssl::BIO* bio, int command, long, void*);
  static const openssl::BIO_METHOD* method();

  bool flushed();              // the lock is held
  ssize_t failed(int result);  // 0 at the end of all, or -1, and errno

  std::mutex lock_;  // of all: OpenSSL reads and writes one state
  openssl::SSL* const ssl_;
  std::vector<std::byte> out_, gathered_;
  std::vector<std::byte> in_;  // none until we read ahead
  size_t out_sent_ = 0, in_read_ = 0, in_end_ = 0;
  bool ended_ = false;  // the other end sends no more, not even a farewell
  bool cut_ = false;    // by an error that is_cut
  std::string why_;
};

}  // namespace hocket::tcp
