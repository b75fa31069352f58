// The addon's functions: unwrap, check, call. src/device/cpu/addon.ts describes them. Work runs on the device's own threads; its
// end comes back through one thread-safe function per device and settles a promise. No C++ exception leaves this file.
#include <node_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>

#include "napi-values.h"
#include "parse.h"
#include "step-arrays.h"
#include "runtime/device.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace pagoda {
namespace {

struct Handle {
  std::unique_ptr<Device> device;
  napi_threadsafe_function finished = nullptr;
  napi_ref self = nullptr;  // strong while something is pending
  napi_env env = nullptr;
  int num_pending = 0;
  bool disposed = false;
  bool writes_cache = false;
  bool step_running[kNumStepSlots] = {};
};

// One pending promise.
struct Pending {
  Handle* handle;
  napi_deferred deferred;
  std::string error;
  int step_slot = -1;
  bool disposes = false;
  std::unique_ptr<std::vector<float>> logits;
  bool writes_cache = false;
  CacheWrite cache_write = CacheWrite::Cancelled;
};

napi_value make_error(napi_env env, const std::string& message, const char* code) {
  napi_value text = nullptr, code_value = nullptr, error = nullptr;
  napi_create_string_utf8(env, message.c_str(), message.size(), &text);
  napi_create_string_utf8(env, code, NAPI_AUTO_LENGTH, &code_value);
  napi_create_error(env, code_value, text, &error);
  return error;
}

// Runs the body of an exported function and turns C++ exceptions into JavaScript ones.
template <typename F>
napi_value guarded(napi_env env, F body) {
  std::string message;
  const char* code = "invalid";
  try {
    return body();
  } catch (const InvalidArgument& e) {
    message = e.what();
  } catch (const std::bad_alloc&) {
    message = "out of memory";
    code = "out_of_memory";
  } catch (const std::exception& e) {
    message = e.what();
    code = "failed";
  } catch (...) {
    message = "unknown native error";
    code = "failed";
  }
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (!pending) napi_throw(env, make_error(env, message, code));
  return nullptr;
}

constexpr napi_type_tag kHandleTag = {0x7061676f64612d63ull, 0x70752d6465766963ull};

Handle* unwrap(napi_env env, napi_value value) {
  bool tagged = false;
  napi_valuetype type = napi_undefined;
  check(napi_typeof(env, value, &type), "handle");
  void* data = nullptr;
  if (type != napi_external || napi_check_object_type_tag(env, value, &kHandleTag, &tagged) != napi_ok || !tagged || napi_get_value_external(env, value, &data) != napi_ok) {
    throw InvalidArgument("the first argument is no device handle");
  }
  Handle* handle = static_cast<Handle*>(data);
  if (handle->disposed) throw InvalidArgument("the device was disposed");
  return handle;
}

Executor& executor(Handle* handle) {
  if (!handle->device->executor()) throw InvalidArgument("the device has no plan yet");
  return *handle->device->executor();
}

napi_value number(napi_env env, double value) {
  napi_value result = nullptr;
  check(napi_create_double(env, value, &result), "result");
  return result;
}

void free_device(Handle* handle) {
  handle->disposed = true;
  handle->device.reset();
}

// At the end of the environment: threads must be gone before the thread-safe function is.
void at_exit(void* data) {
  Handle* handle = static_cast<Handle*>(data);
  free_device(handle);
  if (handle->finished) napi_release_threadsafe_function(handle->finished, napi_tsfn_abort);
  handle->finished = nullptr;
}

void finalize_handle(napi_env env, void* data, void*) {
  Handle* handle = static_cast<Handle*>(data);
  napi_remove_env_cleanup_hook(env, at_exit, handle);
  free_device(handle);
  if (handle->finished) napi_release_threadsafe_function(handle->finished, napi_tsfn_abort);
  if (handle->self) napi_delete_reference(env, handle->self);
  delete handle;
}

void settle(napi_env env, Pending& pending) {
  if (!pending.error.empty()) {
    const bool memory = pending.error.rfind("out of memory", 0) == 0;
    napi_reject_deferred(env, pending.deferred, make_error(env, pending.error, memory ? "out_of_memory" : "failed"));
    return;
  }
  napi_value result = nullptr;
  napi_get_undefined(env, &result);
  if (pending.writes_cache) {
    constexpr const char* kOutcomes[] = {"written", "busy", "cancelled", "too_large"};
    napi_create_string_utf8(env, kOutcomes[static_cast<int>(pending.cache_write)], NAPI_AUTO_LENGTH, &result);
  }
  if (pending.logits) {
    napi_value buffer = nullptr;
    void* data = nullptr;
    const size_t bytes = pending.logits->size() * sizeof(float);
    if (napi_create_arraybuffer(env, bytes, &data, &buffer) != napi_ok || napi_create_typedarray(env, napi_float32_array, pending.logits->size(), buffer, 0, &result) != napi_ok) {
      napi_reject_deferred(env, pending.deferred, make_error(env, "out of memory for the logits", "out_of_memory"));
      return;
    }
    if (bytes > 0) std::memcpy(data, pending.logits->data(), bytes);
  }
  napi_resolve_deferred(env, pending.deferred, result);
}

// On the JavaScript thread, for each finished job.
void on_finished(napi_env env, napi_value, void*, void* data) {
  std::unique_ptr<Pending> pending(static_cast<Pending*>(data));
  if (!env) return;
  Handle* handle = pending->handle;
  if (pending->step_slot >= 0) handle->step_running[pending->step_slot] = false;
  if (pending->disposes) free_device(handle);
  if (--handle->num_pending == 0) {
    napi_unref_threadsafe_function(env, handle->finished);
    napi_reference_unref(env, handle->self, nullptr);
  }
  settle(env, *pending);
}

// Makes the promise of a job that `queue(pending, done)` hands over.
template <typename Queue>
napi_value start(napi_env env, napi_value external, Handle* handle, std::unique_ptr<Pending> pending, const Queue& queue) {
  napi_value promise = nullptr;
  check(napi_create_promise(env, &pending->deferred, &promise), "promise");
  pending->handle = handle;
  if (handle->num_pending++ == 0) {
    if (!handle->self) napi_create_reference(env, external, 0, &handle->self);
    napi_reference_ref(env, handle->self, nullptr);
    napi_ref_threadsafe_function(env, handle->finished);
  }
  if (pending->step_slot >= 0) handle->step_running[pending->step_slot] = true;
  Pending* raw = pending.release();
  queue(raw, [raw](const std::string& error) {
    raw->error = error;
    if (napi_call_threadsafe_function(raw->handle->finished, raw, napi_tsfn_blocking) != napi_ok) delete raw;
  });
  return promise;
}

napi_value strings(napi_env env, const std::vector<std::string>& texts) {
  napi_value list = nullptr;
  check(napi_create_array(env, &list), "list");
  for (size_t i = 0; i < texts.size(); i++) {
    napi_value text = nullptr;
    check(napi_create_string_utf8(env, texts[i].c_str(), texts[i].size(), &text), "list");
    check(napi_set_element(env, list, static_cast<uint32_t>(i), text), "list");
  }
  return list;
}

napi_value info(napi_env env, napi_callback_info) {
  return guarded(env, [&] {
    napi_value result = nullptr;
    check(napi_create_object(env, &result), "result");
    std::vector<std::string> isas = usable_isas(), bf16;
    std::copy_if(isas.begin(), isas.end(), std::back_inserter(bf16), [](const std::string& isa) { return choose_kernels(isa)->has_bf16_attention(); });
    check(napi_set_named_property(env, result, "isas", strings(env, isas)), "result");
    check(napi_set_named_property(env, result, "bf16AttentionIsas", strings(env, bf16)), "result");
    return result;
  });
}

// Thread i may use cpus[cpuStarts[i] .. cpuStarts[i + 1]); no such fields: any.
std::vector<std::vector<int>> cpus_of_threads(const Object& options, int num_threads) {
  std::vector<std::vector<int>> sets;
  if (!options.has("cpus")) return sets;
  const std::vector<int32_t> cpus = options.int32_vector("cpus"), starts = options.int32_vector("cpuStarts");
  if (starts.size() != static_cast<size_t>(num_threads) + 1) throw InvalidArgument("cpuStarts must have one entry more than there are threads");
  for (int i = 0; i < num_threads; i++) {
    if (starts[i] < 0 || starts[i + 1] <= starts[i] || starts[i + 1] > static_cast<int32_t>(cpus.size())) throw InvalidArgument("cpuStarts is out of order");
    sets.emplace_back(cpus.begin() + starts[i], cpus.begin() + starts[i + 1]);
  }
  return sets;
}

napi_value create(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 1);
    const Object options(env, arguments[0], "options");
    const std::string isa = options.string("isa");
    const int num_threads = options.int32("numThreads", 1, 1024);
    auto handle = std::make_unique<Handle>();
    handle->env = env;
    handle->device = std::make_unique<Device>(isa, num_threads, cpus_of_threads(options, num_threads));
    napi_value name = nullptr, result = nullptr;
    check(napi_create_string_utf8(env, "pagoda", NAPI_AUTO_LENGTH, &name), "name");
    check(napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr, on_finished, &handle->finished), "thread-safe function");
    napi_unref_threadsafe_function(env, handle->finished);
    check(napi_create_external(env, handle.get(), finalize_handle, nullptr, &result), "handle");
    Handle* owned = handle.release();
    napi_add_env_cleanup_hook(env, at_exit, owned);
    check(napi_type_tag_object(env, result, &kHandleTag), "handle");
    return result;
  });
}

napi_value device_info(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 1);
    Handle* handle = unwrap(env, arguments[0]);
    napi_value result = nullptr, isa = nullptr;
    check(napi_create_object(env, &result), "result");
    check(napi_create_string_utf8(env, handle->device->kernels().isa, NAPI_AUTO_LENGTH, &isa), "isa");
    check(napi_set_named_property(env, result, "isa", isa), "result");
    check(napi_set_named_property(env, result, "numThreads", number(env, handle->device->num_threads())), "result");
    check(napi_set_named_property(env, result, "weightBytes", number(env, static_cast<double>(handle->device->weight_bytes()))), "result");
    napi_value forms = nullptr;
    check(napi_create_array_with_length(env, kNumFormats, &forms), "rowForms");
    for (int f = 0; f < kNumFormats; f++) {
      check(napi_set_element(env, forms, f, number(env, static_cast<double>(handle->device->kernels().row_form(static_cast<Format>(f))))), "rowForms");
    }
    check(napi_set_named_property(env, result, "rowForms", forms), "result");
    return result;
  });
}

// As text: all 64 bits count.
napi_value packed_layout(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 1);
    const Handle* handle = unwrap(env, arguments[0]);
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(packed_layout_id(handle->device->kernels())));
    napi_value result = nullptr;
    check(napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &result), "result");
    return result;
  });
}

napi_value packed_bytes(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 2);
    const Handle* handle = unwrap(env, arguments[0]);
    const Object shape(env, arguments[1], "shape");
    const Format format = static_cast<Format>(shape.int32("format", 0, kNumFormats - 1));
    const uint64_t bytes = packed_weight_bytes(handle->device->kernels(), format, shape.int32("rows", 1), shape.int32("cols", 1), shape.int32("numParts", 1));
    return number(env, static_cast<double>(bytes));
  });
}

// The header of a cache file; what is wrong with it is thrown.
napi_value read_header(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 1);
    const std::string header = read_packed_header(Object(env, arguments[0], "options").string("path"));
    napi_value result = nullptr;
    check(napi_create_string_utf8(env, header.data(), header.size(), &result), "result");
    return result;
  });
}

napi_value use_packed_cache(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    const Object options(env, arguments[1], "options");
    std::string path = options.string("path"), header = options.string("header");
    return start(env, arguments[0], handle, std::make_unique<Pending>(), [&](Pending*, Device::Done done) { handle->device->queue_cache(std::move(path), std::move(header), std::move(done)); });
  });
}

napi_value write_packed(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    executor(handle);
    if (handle->writes_cache) throw InvalidArgument("the cache was written before");
    const Object options(env, arguments[1], "options");
    std::string path = options.string("path"), header = options.string("header");
    const uint64_t max_bytes = static_cast<uint64_t>(options.integer("maxBytes", 0, int64_t{1} << 53));
    handle->writes_cache = true;
    auto pending = std::make_unique<Pending>();
    pending->writes_cache = true;
    return start(env, arguments[0], handle, std::move(pending), [&](Pending* raw, Device::Done done) {
      handle->device->start_cache_write(std::move(path), std::move(header), max_bytes, &raw->cache_write, std::move(done));
    });
  });
}

// Bytes that are allocated on the process's heap now; -1 where the C library does not tell.
napi_value heap_bytes(napi_env env, napi_callback_info) {
  return guarded(env, [&] {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 info = mallinfo2();
    return number(env, static_cast<double>(info.uordblks + info.hblkhd));
#else
    return number(env, -1);
#endif
  });
}

napi_value load_weight(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    WeightSource source = parse_weight(Object(env, arguments[1], "weight"));
    return start(env, arguments[0], handle, std::make_unique<Pending>(), [&](Pending*, Device::Done done) { handle->device->queue_load(std::move(source), std::move(done)); });
  });
}

napi_value set_plan(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    Plan plan = parse_plan(Object(env, arguments[1], "plan"));
    return start(env, arguments[0], handle, std::make_unique<Pending>(), [&](Pending*, Device::Done done) { handle->device->queue_plan(std::move(plan), std::move(done)); });
  });
}

napi_value allocate_kv(napi_env env, napi_callback_info callback) {
  return guarded(env, [&]() -> napi_value {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    const Object options(env, arguments[1], "options");
    if (handle->num_pending > 0) throw InvalidArgument("the KV pool cannot be reserved while work is running");
    executor(handle).allocate_kv(options.integer("numBlocks", 2, INT32_MAX));
    return nullptr;
  });
}

napi_value add_sequence(napi_env env, napi_callback_info callback) {
  return guarded(env, [&]() -> napi_value {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    handle->device->queue_add(parse_sequence(Object(env, arguments[1], "sequence"), executor(handle).plan()));
    return nullptr;
  });
}

napi_value remove_sequence(napi_env env, napi_callback_info callback) {
  return guarded(env, [&]() -> napi_value {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    const Object options(env, arguments[1], "options");
    handle->device->queue_remove(options.int32("slot", 0, executor(handle).plan().limits.max_seqs - 1));
    return nullptr;
  });
}

int step_slot(napi_env env, napi_value value, Handle* handle) {
  int32_t slot = -1;
  check(napi_get_value_int32(env, value, &slot), "step slot");
  if (slot < 0 || slot >= kNumStepSlots || handle->step_running[slot]) throw InvalidArgument("the step slot is out of range or in use");
  return slot;
}

napi_value submit_step(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    Arguments arguments(env, callback, 12);
    Handle* handle = unwrap(env, arguments[0]);
    const int slot = step_slot(env, arguments[1], handle);
    const Executor& e = executor(handle);
    if (e.num_blocks() == 0) throw InvalidArgument("the KV pool is not reserved");
    arguments.skip_to(2);
    parse_batch(arguments, e.plan(), e.num_blocks(), &handle->device->step(slot).in);
    auto pending = std::make_unique<Pending>();
    pending->step_slot = slot;
    return start(env, arguments[0], handle, std::move(pending), [&](Pending*, Device::Done done) { handle->device->queue_step(slot, std::move(done)); });
  });
}

// Whether the lists of alternatives and prompt rows had room; where not, only the counts are filled.
napi_value read_step(napi_env env, napi_callback_info callback) {
  return guarded(env, [&]() -> napi_value {
    Arguments arguments(env, callback, 14);
    Handle* handle = unwrap(env, arguments[0]);
    const Step& step = handle->device->step(step_slot(env, arguments[1], handle));
    arguments.skip_to(2);
    napi_value result = nullptr;
    check(napi_get_boolean(env, fill_arrays(step, arguments), &result), "result");
    return result;
  });
}

napi_value logits(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 2);
    Handle* handle = unwrap(env, arguments[0]);
    const Plan& plan = executor(handle).plan();
    std::vector<int32_t> tokens = Object(env, arguments[1], "options").int32_vector("tokenIds");
    if (tokens.empty() || tokens.size() > static_cast<size_t>(plan.limits.max_model_len)) throw InvalidArgument("tokenIds must have 1 to max-model-len entries");
    for (int32_t id : tokens) if (id < 0 || id >= plan.vocab_size) throw InvalidArgument("a token id is outside the vocabulary");
    auto pending = std::make_unique<Pending>();
    pending->logits = std::make_unique<std::vector<float>>();
    return start(env, arguments[0], handle, std::move(pending), [&](Pending* raw, Device::Done done) { handle->device->queue_logits(std::move(tokens), raw->logits.get(), std::move(done)); });
  });
}

napi_value dispose(napi_env env, napi_callback_info callback) {
  return guarded(env, [&] {
    const Arguments arguments(env, callback, 1);
    Handle* handle = unwrap(env, arguments[0]);
    auto pending = std::make_unique<Pending>();
    pending->disposes = true;
    const napi_value promise = start(env, arguments[0], handle, std::move(pending), [&](Pending*, Device::Done done) { handle->device->queue_nothing(std::move(done)); });
    handle->disposed = true;
    return promise;
  });
}

napi_value initialise(napi_env env, napi_value exports) {
  const napi_property_descriptor functions[] = {
      {"info", nullptr, info, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"create", nullptr, create, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"deviceInfo", nullptr, device_info, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"packedLayout", nullptr, packed_layout, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"packedBytes", nullptr, packed_bytes, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"readPackedHeader", nullptr, read_header, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"usePackedCache", nullptr, use_packed_cache, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"writePackedCache", nullptr, write_packed, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"heapBytes", nullptr, heap_bytes, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"loadWeight", nullptr, load_weight, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"setPlan", nullptr, set_plan, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"allocateKv", nullptr, allocate_kv, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"addSequence", nullptr, add_sequence, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"removeSequence", nullptr, remove_sequence, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"submitStep", nullptr, submit_step, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"readStep", nullptr, read_step, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"logits", nullptr, logits, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"dispose", nullptr, dispose, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
  };
  napi_define_properties(env, exports, sizeof(functions) / sizeof(functions[0]), functions);
  return exports;
}

}  // namespace
}  // namespace pagoda

NAPI_MODULE_INIT() { return pagoda::initialise(env, exports); }
