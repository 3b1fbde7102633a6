// The part of OpenSSL that TLS needs (1.1.1 and 3), found when it is first asked for: who does not use TLS needs no
// OpenSSL, neither to build hocket nor to run it.
#pragma once

#include <string>

namespace hocket::openssl {

struct SSL_METHOD;
struct SSL_CTX;
struct SSL;
struct BIO_METHOD;
struct BIO;
struct X509_STORE_CTX;

// The names and values are those of its headers.
constexpr int filetype_pem = 1, verify_peer = 1, verify_fail_if_no_peer_cert = 2;
constexpr int ctrl_set_min_proto_version = 123, tls1_3_version = 0x0304;
constexpr int error_ssl = 1, error_want_read = 2, error_want_write = 3, error_zero_return = 6;
constexpr int bio_type_source_sink = 0x0400, bio_ctrl_flush = 11;
constexpr int bio_flags_read = 1, bio_flags_should_retry = 8;

struct Library {
  const SSL_METHOD* (*TLS_method)();
  SSL_CTX* (*SSL_CTX_new)(const SSL_METHOD*);
  void (*SSL_CTX_free)(SSL_CTX*);
  long (*SSL_CTX_ctrl)(SSL_CTX*, int, long, void*);
  int (*SSL_CTX_set_ciphersuites)(SSL_CTX*, const char*);
  int (*SSL_CTX_set_num_tickets)(SSL_CTX*, size_t);
  void (*SSL_CTX_set_default_passwd_cb)(SSL_CTX*, int (*)(char*, int, int, void*));
  int (*SSL_CTX_use_certificate_chain_file)(SSL_CTX*, const char*);
  int (*SSL_CTX_use_PrivateKey_file)(SSL_CTX*, const char*, int);
  int (*SSL_CTX_load_verify_locations)(SSL_CTX*, const char*, const char*);
  void (*SSL_CTX_set_verify)(SSL_CTX*, int, int (*)(int, X509_STORE_CTX*));
  SSL* (*SSL_new)(SSL_CTX*);
  void (*SSL_free)(SSL*);
  void (*SSL_set_bio)(SSL*, BIO*, BIO*);
  void (*SSL_set_connect_state)(SSL*);
  void (*SSL_set_accept_state)(SSL*);
  int (*SSL_read)(SSL*, void*, int);
  int (*SSL_write)(SSL*, const void*, int);
  int (*SSL_shutdown)(SSL*);
  int (*SSL_get_error)(const SSL*, int);
  long (*SSL_get_verify_result)(const SSL*);
  BIO_METHOD* (*BIO_meth_new)(int, const char*);
  int (*BIO_meth_set_write)(BIO_METHOD*, int (*)(BIO*, const char*, int));
  int (*BIO_meth_set_read)(BIO_METHOD*, int (*)(BIO*, char*, int));
  int (*BIO_meth_set_ctrl)(BIO_METHOD*, long (*)(BIO*, int, long, void*));
  BIO* (*BIO_new)(const BIO_METHOD*);
  void (*BIO_set_data)(BIO*, void*);
  void* (*BIO_get_data)(BIO*);
  void (*BIO_set_init)(BIO*, int);
  void (*BIO_set_flags)(BIO*, int);
  void (*BIO_clear_flags)(BIO*, int);
  unsigned long (*ERR_get_error)();
  const char* (*ERR_reason_error_string)(unsigned long);
  void (*ERR_clear_error)();
  const char* (*X509_verify_cert_error_string)(long);
};

// Throws Refusal where this machine has none.
const Library& library();

// What it says of the last error of this thread, and nothing more of it.
std::string last_error();

}  // namespace hocket::openssl
