// The part of UCX that a pipe needs (libucp 1.12 or newer), found when it is first asked for: who does not use UCX
// needs none, neither to build hocket nor to run it. What is declared here is the beginning of its headers' structures,
// which only ever grow at their ends: masks of fields tell it how much of them there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hocket::ucx {

struct Config;
struct ContextHandle;
struct Worker;
struct Ep;
struct Address;

enum Status : signed char { ok = 0, in_progress = 1, busy = -15, last_error = -100 };

constexpr uint64_t bit(int number) { return uint64_t{1} << number; }

struct Params {
  static constexpr uint64_t has_features = bit(0), has_mt_workers_shared = bit(5);
  static constexpr uint64_t wakeup = bit(4), stream = bit(5);
  uint64_t fields;
  uint64_t features;
  size_t request_size;
  void* request_init;
  void* request_cleanup;
  uint64_t tag_sender_mask;
  int mt_workers_shared;
};
static_assert(offsetof(Params, mt_workers_shared) == 48);

struct WorkerParams {
  static constexpr uint64_t has_thread_mode = bit(0);
  static constexpr int serialized = 1;
  uint64_t fields;
  int thread_mode;
};

struct WorkerAttributes {
  static constexpr uint64_t has_thread_mode = bit(0), has_address = bit(1);
  uint64_t fields;
  int thread_mode;
  uint32_t address_flags;
  Address* address;
  size_t address_length;
};
static_assert(offsetof(WorkerAttributes, address_length) == 24);

struct EpParams {
  static constexpr uint64_t has_address = bit(0), has_err_mode = bit(1), has_err_handler = bit(2);
  static constexpr int none = 0, peer = 1;
  uint64_t fields;
  const void* address;
  int err_mode;
  void (*on_error)(void* user_data, Ep*, Status);
  void* user_data;
};
static_assert(offsetof(EpParams, user_data) == 32);

struct EpAttributes {
  static constexpr uint64_t has_transports = bit(3);
  struct Entry {
    const char *transport, *device;
  };
  uint64_t fields;
  char name[32];
  char local_and_remote[256];
  Entry* entries;
  unsigned count;
  size_t entry_size;
};
static_assert(offsetof(EpAttributes, entries) == 296 && sizeof(EpAttributes) == 320);

struct RequestParams {
  static constexpr uint32_t has_callback = bit(1), has_user_data = bit(2), has_flags = bit(4);
  static constexpr uint32_t force = bit(0);  // of closing
  uint32_t fields;
  uint32_t flags;
  void* request;
  void (*callback)(void* request, Status, void* user_data);
  uint64_t datatype;
  void* user_data;
  void* reserved[8];
};
static_assert(offsetof(RequestParams, user_data) == 32);

// What is given back for something that may take a while: null, an error, or a request.
inline bool is_error(void* result) { return reinterpret_cast<uintptr_t>(result) >= static_cast<uintptr_t>(last_error); }
inline bool is_request(void* result) { return result != nullptr && !is_error(result); }
inline Status status_of(void* result) {
  return is_request(result) ? in_progress : static_cast<Status>(reinterpret_cast<intptr_t>(result));
}

struct Library {
  void (*ucp_get_version)(unsigned*, unsigned*, unsigned*);
  Status (*ucp_config_read)(const char*, const char*, Config**);
  Status (*ucp_config_modify)(Config*, const char*, const char*);
  void (*ucp_config_release)(Config*);
  Status (*ucp_init_version)(unsigned, unsigned, const Params*, const Config*, ContextHandle**);
  void (*ucp_cleanup)(ContextHandle*);
  Status (*ucp_worker_create)(ContextHandle*, const WorkerParams*, Worker**);
  void (*ucp_worker_destroy)(Worker*);
  Status (*ucp_worker_query)(Worker*, WorkerAttributes*);
  void (*ucp_worker_release_address)(Worker*, Address*);
  unsigned (*ucp_worker_progress)(Worker*);
  Status (*ucp_worker_get_efd)(Worker*, int*);
  Status (*ucp_worker_arm)(Worker*);
  Status (*ucp_ep_create)(Worker*, const EpParams*, Ep**);
  Status (*ucp_ep_query)(Ep*, EpAttributes*);
  void* (*ucp_ep_close_nbx)(Ep*, const RequestParams*);
  void* (*ucp_stream_send_nbx)(Ep*, const void*, size_t, const RequestParams*);
  void* (*ucp_stream_recv_data_nb)(Ep*, size_t*);
  void (*ucp_stream_data_release)(Ep*, void*);
  Status (*ucp_request_check_status)(void*);
  void (*ucp_request_free)(void*);
  const char* (*ucs_status_string)(Status);
  Status (*ucs_global_opts_get_value)(const char*, char*, size_t);
  Status (*ucs_global_opts_set_value)(const char*, const char*);
};

// A libucp, and how it is to be used by this process: what pipes share.
class Context {
 public:
  // `path` is that of libucp.so.0, or its name, if the loader knows where it is. `transports` is as UCX_TLS.
  // Throws Refusal, which says what is missing.
  Context(const std::string& path, const std::string& transports);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Library& library() const { return library_; }
  ContextHandle* handle() const { return handle_; }
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

 private:
  const int born_;
  Library library_{};
  std::string path_, version_;
  ContextHandle* handle_ = nullptr;
};

}  // namespace hocket::ucx
