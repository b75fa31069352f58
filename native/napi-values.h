// Reading JavaScript values with checks: every function throws InvalidArgument with the field's name when the value is not what
// is wanted. Nothing here keeps a pointer into JavaScript memory past the call.
#pragma once
#include <node_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pagoda {

struct InvalidArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A pending JavaScript exception or a failed call; the boundary reports it.
inline void check(napi_status status, const char* what) {
  if (status != napi_ok) throw InvalidArgument(std::string(what) + " is missing or has a wrong type");
}

template <typename T>
struct Span {
  T* data;
  size_t length;
};

template <typename T>
constexpr napi_typedarray_type kArrayType = napi_int8_array;
template <>
inline constexpr napi_typedarray_type kArrayType<int32_t> = napi_int32_array;
template <>
inline constexpr napi_typedarray_type kArrayType<uint8_t> = napi_uint8_array;
template <>
inline constexpr napi_typedarray_type kArrayType<float> = napi_float32_array;
template <>
inline constexpr napi_typedarray_type kArrayType<double> = napi_float64_array;

template <typename T>
Span<T> read_array(napi_env env, napi_value value, const char* name) {
  napi_typedarray_type type = napi_int8_array;
  size_t length = 0;
  void* data = nullptr;
  check(napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr), name);
  if (type != kArrayType<T>) throw InvalidArgument(std::string(name) + " is a typed array of a wrong kind");
  if (length > 0 && data == nullptr) throw InvalidArgument(std::string(name) + " is detached");
  return {static_cast<T*>(data), length};
}

// An integer in [low, high].
inline int64_t read_integer(napi_env env, napi_value value, const char* name, int64_t low, int64_t high) {
  double result = 0;
  check(napi_get_value_double(env, value, &result), name);
  if (!(result >= static_cast<double>(low) && result <= static_cast<double>(high)) || result != static_cast<double>(static_cast<int64_t>(result))) {
    throw InvalidArgument(std::string(name) + " must be an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return static_cast<int64_t>(result);
}

// The arguments of a call, read one after the other: what every step passes goes so, because looking a property up by its name costs more than
// reading its value.
class Arguments {
 public:
  static constexpr size_t kMost = 14;

  Arguments(napi_env env, napi_callback_info info, size_t wanted) : env_(env) {
    check(napi_get_cb_info(env, info, &count_, values_, nullptr, nullptr), "arguments");
    if (count_ < wanted) throw InvalidArgument("too few arguments");
  }
  napi_value operator[](size_t index) const { return values_[index]; }
  template <typename T>
  Span<T> next_array(const char* name) {
    return read_array<T>(env_, values_[next_++], name);
  }
  int32_t next_int32(const char* name, int32_t low, int32_t high) { return static_cast<int32_t>(read_integer(env_, values_[next_++], name, low, high)); }
  void skip_to(size_t index) { next_ = index; }

 private:
  napi_env env_;
  size_t count_ = kMost, next_ = 0;
  napi_value values_[kMost] = {};
};

class Object {
 public:
  Object(napi_env env, napi_value value, const char* what) : env_(env), value_(value) {
    napi_valuetype type = napi_undefined;
    check(napi_typeof(env, value, &type), what);
    if (type != napi_object) throw InvalidArgument(std::string(what) + " must be an object");
  }
  napi_env env() const { return env_; }
  napi_value value() const { return value_; }

  napi_value get(const char* name) const {
    napi_value result = nullptr;
    check(napi_get_named_property(env_, value_, name, &result), name);
    return result;
  }
  bool has(const char* name) const {
    napi_valuetype type = napi_undefined;
    check(napi_typeof(env_, get(name), &type), name);
    return type != napi_undefined && type != napi_null;
  }
  double number(const char* name) const {
    double result = 0;
    check(napi_get_value_double(env_, get(name), &result), name);
    return result;
  }
  double number_or(const char* name, double otherwise) const { return has(name) ? number(name) : otherwise; }
  int64_t integer(const char* name, int64_t low, int64_t high) const { return read_integer(env_, get(name), name, low, high); }
  int32_t int32(const char* name, int32_t low = INT32_MIN, int32_t high = INT32_MAX) const { return static_cast<int32_t>(integer(name, low, high)); }
  int32_t int32_or(const char* name, int32_t otherwise, int32_t low = INT32_MIN) const { return has(name) ? int32(name, low) : otherwise; }
  bool boolean(const char* name) const {
    bool result = false;
    check(napi_get_value_bool(env_, get(name), &result), name);
    return result;
  }
  bool boolean_or(const char* name, bool otherwise) const { return has(name) ? boolean(name) : otherwise; }
  uint64_t uint64(const char* name) const {
    uint64_t result = 0;
    bool lossless = false;
    check(napi_get_value_bigint_uint64(env_, get(name), &result, &lossless), name);
    if (!lossless) throw InvalidArgument(std::string(name) + " must fit in 64 bits");
    return result;
  }
  std::string string(const char* name) const {
    size_t length = 0;
    check(napi_get_value_string_utf8(env_, get(name), nullptr, 0, &length), name);
    std::string result(length + 1, '\0');
    check(napi_get_value_string_utf8(env_, get(name), &result[0], length + 1, &length), name);
    result.resize(length);
    return result;
  }
  Object object(const char* name) const { return Object(env_, get(name), name); }
  template <typename F>
  void for_each(const char* name, F f) const {
    const napi_value list = get(name);
    uint32_t length = 0;
    check(napi_get_array_length(env_, list, &length), name);
    for (uint32_t i = 0; i < length; i++) {
      napi_handle_scope scope = nullptr;
      check(napi_open_handle_scope(env_, &scope), name);
      napi_value element = nullptr;
      const napi_status status = napi_get_element(env_, list, i, &element);
      if (status == napi_ok) f(Object(env_, element, name));
      napi_close_handle_scope(env_, scope);
      check(status, name);
    }
  }
  Span<int32_t> int32s(const char* name) const { return read_array<int32_t>(env_, get(name), name); }
  Span<float> floats(const char* name) const { return read_array<float>(env_, get(name), name); }
  Span<double> doubles(const char* name) const { return read_array<double>(env_, get(name), name); }
  std::vector<int32_t> int32_vector(const char* name) const {
    const Span<int32_t> span = int32s(name);
    return std::vector<int32_t>(span.data, span.data + span.length);
  }

 private:
  napi_env env_;
  napi_value value_;
};

}  // namespace pagoda
