#include "transport/tcp/openssl.h"

#include <dlfcn.h>

#include "wait/wait.h"

namespace hocket::openssl {

namespace {

void* open() {
  for (const char* name : {"libssl.so.3", "libssl.so.1.1", "libssl.so"}) {
    if (void* found = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return found;
  }
  throw Refusal{"TLS needs OpenSSL, and there is no libssl.so.3 here; on Debian and Ubuntu: apt install openssl"};
}

template <typename Function>
void find(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function == nullptr)
    throw Refusal{std::string("TLS needs OpenSSL 1.1.1 or newer: the one of this machine has no ") + name};
}

Library load() {
  void* const ssl = open();
  Library all{};
#define HOCKET_FIND(name) find(ssl, #name, all.name)
  HOCKET_FIND(TLS_method);
  HOCKET_FIND(SSL_CTX_new);
  HOCKET_FIND(SSL_CTX_free);
  HOCKET_FIND(SSL_CTX_ctrl);
  HOCKET_FIND(SSL_CTX_set_ciphersuites);
  HOCKET_FIND(SSL_CTX_set_num_tickets);
  HOCKET_FIND(SSL_CTX_set_default_passwd_cb);
  HOCKET_FIND(SSL_CTX_use_certificate_chain_file);
  HOCKET_FIND(SSL_CTX_use_PrivateKey_file);
  HOCKET_FIND(SSL_CTX_load_verify_locations);
  HOCKET_FIND(SSL_CTX_set_verify);
  HOCKET_FIND(SSL_new);
  HOCKET_FIND(SSL_free);
  HOCKET_FIND(SSL_set_bio);
  HOCKET_FIND(SSL_set_connect_state);
  HOCKET_FIND(SSL_set_accept_state);
  HOCKET_FIND(SSL_read);
  HOCKET_FIND(SSL_write);
  HOCKET_FIND(SSL_shutdown);
  HOCKET_FIND(SSL_get_error);
  HOCKET_FIND(SSL_get_verify_result);
  HOCKET_FIND(BIO_meth_new);
  HOCKET_FIND(BIO_meth_set_write);
  HOCKET_FIND(BIO_meth_set_read);
  HOCKET_FIND(BIO_meth_set_ctrl);
  HOCKET_FIND(BIO_new);
  HOCKET_FIND(BIO_set_data);
  HOCKET_FIND(BIO_get_data);
  HOCKET_FIND(BIO_set_init);
  HOCKET_FIND(BIO_set_flags);
  HOCKET_FIND(BIO_clear_flags);
  HOCKET_FIND(ERR_get_error);
  HOCKET_FIND(ERR_reason_error_string);
  HOCKET_FIND(ERR_clear_error);
  HOCKET_FIND(X509_verify_cert_error_string);
#undef HOCKET_FIND
  return all;
}

}  // namespace

const Library& library() {
  static const Library all = load();
  return all;
}

std::string last_error() {
  const Library& ssl = library();
  std::string text;
  while (const unsigned long code = ssl.ERR_get_error()) {
    if (const char* reason = ssl.ERR_reason_error_string(code)) text = reason;
  }
  return text.empty() ? "no reason given" : text;
}

}  // namespace hocket::openssl
