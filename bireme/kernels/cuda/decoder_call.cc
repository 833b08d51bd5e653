// The stack of decoder layers as XLA calls it.

#include "decoder.h"
#include "xla/ffi/api/ffi.h"

namespace bireme {
namespace {

namespace ffi = xla::ffi;

// Arguments: x, cos, sin, place, zeros, then of every layer norm1, q, k, v, mix, norm2, gate, up,
// down, keys, values, then perhaps norm and head. Results: what comes out, the caches in place, and
// the zeros in place. gpu_decoder.py writes the call.
constexpr int kFirst = 5, kEach = 11;

class Arguments {
 public:
  explicit Arguments(ffi::RemainingArgs given) : given_(given) {}

  void* Data(int i) {
    auto found = given_.get<ffi::AnyBuffer>(i);
    return found.has_value() ? found.value().untyped_data() : Fail();
  }

  int64_t Size(int i, int axis) {
    auto found = given_.get<ffi::AnyBuffer>(i);
    if (!found.has_value() || static_cast<size_t>(axis) >= found.value().dimensions().size()) {
      Fail();
      return 0;
    }
    return found.value().dimensions()[axis];
  }

  void Weight(CUtensorMap& map, int i, int64_t rows, int64_t columns) {
    if (Size(i, 0) != rows || Size(i, 1) != columns) Fail();
    const char* error = Describe(map, Data(i), static_cast<int>(rows), static_cast<int>(columns));
    if (error != nullptr) error_ = error;
  }

  const char* error() const { return error_; }

 private:
  void* Fail() {
    error_ = "the arguments are not those of a stack of layers";
    return nullptr;
  }

  ffi::RemainingArgs given_;
  const char* error_ = nullptr;
};

ffi::Error Call(void* stream, ffi::RemainingArgs given, ffi::RemainingRets results, int64_t layers,
                int64_t heads, int64_t groups, int64_t size, float epsilon, bool half) {
  Arguments arguments(given);
  if (layers < 1 || layers > kLayers) return ffi::Error::InvalidArgument("1 to 32 layers");
  auto out = results.get<ffi::AnyBuffer>(0);
  if (!out.has_value()) return ffi::Error::InvalidArgument("no result");
  Decoder d = {};
  d.x = arguments.Data(0);
  d.cos = arguments.Data(1);
  d.sin = arguments.Data(2);
  d.place = static_cast<const int64_t*>(arguments.Data(3));
  d.exchange = static_cast<float*>(arguments.Data(4));
  d.exchange_size = arguments.Size(4, 0);
  d.out = out.value()->untyped_data();
  d.count = static_cast<int>(layers);
  d.heads = static_cast<int>(heads);
  d.groups = static_cast<int>(groups);
  d.size = static_cast<int>(size);
  d.epsilon = epsilon;
  d.width = static_cast<int>(arguments.Size(kFirst, 0));
  d.inner = static_cast<int>(arguments.Size(kFirst + 6, 1));
  d.length = static_cast<int>(arguments.Size(kFirst + 9, 1));
  const int64_t attended = heads * size, kept = groups * size;
  for (int l = 0; l < d.count; ++l) {
    const int at = kFirst + l * kEach;
    Weights& w = d.weights[l];
    arguments.Weight(w.q, at + 1, d.width, attended);
    arguments.Weight(w.k, at + 2, d.width, kept);
    arguments.Weight(w.v, at + 3, d.width, kept);
    arguments.Weight(w.mix, at + 4, attended, d.width);
    arguments.Weight(w.gate, at + 6, d.width, d.inner);
    arguments.Weight(w.up, at + 7, d.width, d.inner);
    arguments.Weight(w.down, at + 8, d.inner, d.width);
    d.layers[l] = {arguments.Data(at), arguments.Data(at + 5), arguments.Data(at + 9),
                   arguments.Data(at + 10)};
  }
  const int after = kFirst + d.count * kEach;
  if (given.size() > static_cast<size_t>(after)) {
    d.norm = arguments.Data(after);
    d.vocabulary = static_cast<int>(arguments.Size(after + 1, 1));
    arguments.Weight(d.head, after + 1, d.width, d.vocabulary);
  } else {
    d.norm = d.layers[0].norm1;  // its result is not used
  }
  if (arguments.error() != nullptr) return ffi::Error::InvalidArgument(arguments.error());
  const char* error = Launch(d, half, stream);
  return error == nullptr ? ffi::Error::Success() : ffi::Error::Internal(error);
}

}  // namespace
}  // namespace bireme

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_decoder, bireme::Call,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<void*>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("layers")
                                  .Attr<int64_t>("heads")
                                  .Attr<int64_t>("groups")
                                  .Attr<int64_t>("size")
                                  .Attr<float>("epsilon")
                                  .Attr<bool>("half"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
