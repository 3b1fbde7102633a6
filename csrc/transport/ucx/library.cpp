#include "transport/ucx/library.h"

#include <dlfcn.h>

#include <array>
#include <csignal>

#include "wait/fork.h"
#include "wait/signals.h"
#include "wait/wait.h"

namespace hocket::ucx {

namespace {

constexpr unsigned major_version = 1, minor_version = 12;  // since then it tells which transports it has chosen

// As it is loaded, UCX puts handlers of its own before those that a program has for its signals.
class SameHandlers {
 public:
  SameHandlers() {
    for (int number = 1; number < SIGRTMIN; ++number) sigaction(number, nullptr, &before_[number]);
  }
  ~SameHandlers() {
    for (int number = 1; number < SIGRTMIN; ++number) {
      struct sigaction now;
      if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != before_[number].sa_handler)
        sigaction(number, &before_[number], nullptr);
    }
  }
  SameHandlers(const SameHandlers&) = delete;
  SameHandlers& operator=(const SameHandlers&) = delete;

 private:
  std::array<struct sigaction, 65> before_{};
};

std::string why() {
  const char* const text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

// Its parts lie beside it, and need each other in this order; where they lie elsewhere the loader finds them.
void* open(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) {
    for (const char* part : {"libucs.so.0", "libucm.so.0", "libuct.so.0"})
      dlopen((path.substr(0, slash + 1) + part).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (void* found = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  throw Refusal{"UCX cannot be loaded (" + why() +
                "): install it (on Debian and Ubuntu: apt install libucx0), or set HOCKET_UCX to the path of a " +
                "libucp.so.0"};
}

template <typename Function>
void find(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function == nullptr)
    throw Refusal{std::string("hocket needs UCX 1.12 or newer: the one that was found has no ") + name};
}

Library load(const std::string& path) {
  void* const ucp = open(path);
  Library all{};
#define HOCKET_FIND(name) find(ucp, #name, all.name)
  HOCKET_FIND(ucp_get_version);
  HOCKET_FIND(ucp_config_read);
  HOCKET_FIND(ucp_config_modify);
  HOCKET_FIND(ucp_config_release);
  HOCKET_FIND(ucp_init_version);
  HOCKET_FIND(ucp_cleanup);
  HOCKET_FIND(ucp_worker_create);
  HOCKET_FIND(ucp_worker_destroy);
  HOCKET_FIND(ucp_worker_query);
  HOCKET_FIND(ucp_worker_release_address);
  HOCKET_FIND(ucp_worker_progress);
  HOCKET_FIND(ucp_worker_get_efd);
  HOCKET_FIND(ucp_worker_arm);
  HOCKET_FIND(ucp_ep_create);
  HOCKET_FIND(ucp_ep_query);
  HOCKET_FIND(ucp_ep_close_nbx);
  HOCKET_FIND(ucp_stream_send_nbx);
  HOCKET_FIND(ucp_stream_recv_data_nb);
  HOCKET_FIND(ucp_stream_data_release);
  HOCKET_FIND(ucp_request_check_status);
  HOCKET_FIND(ucp_request_free);
  HOCKET_FIND(ucs_status_string);
  HOCKET_FIND(ucs_global_opts_get_value);
  HOCKET_FIND(ucs_global_opts_set_value);
#undef HOCKET_FIND
  return all;
}

std::string where(void* function, const std::string& path) {
  Dl_info found;
  return dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : path;
}

}  // namespace

Context::Context(const std::string& path, const std::string& transports) : born_(forks()) {
  const SameHandlers same;
  const NoSignals none;
  library_ = load(path);
  path_ = where(reinterpret_cast<void*>(library_.ucp_worker_progress), path);
  unsigned major, minor, release;
  library_.ucp_get_version(&major, &minor, &release);
  version_ = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  if (major != major_version || minor < minor_version)
    throw Refusal{"hocket needs UCX 1.12 or newer, and " + path_ + " is " + version_};
  const auto need = [this](Status done, const std::string& what) {
    if (done != ok)
      throw Refusal{std::string("UCX ") + version_ + " " + what + ": " + library_.ucs_status_string(done)};
  };
  Config* config = nullptr;
  need(library_.ucp_config_read(nullptr, nullptr, &config), "cannot read its settings");
  const std::unique_ptr<Config, void (*)(Config*)> held(config, library_.ucp_config_release);
  need(library_.ucp_config_modify(config, "TLS", transports.c_str()), "does not take these transports");
  Params params{};
  params.fields = Params::has_features | Params::has_mt_workers_shared;
  params.features = Params::stream | Params::wakeup;
  params.mt_workers_shared = 1;
  need(library_.ucp_init_version(major_version, minor_version, &params, config, &handle_),
       "cannot begin with the transports " + transports);
}

Context::~Context() {
  if (forks() == born_) library_.ucp_cleanup(handle_);
}

}  // namespace hocket::ucx
