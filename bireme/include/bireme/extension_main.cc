// The way into an extension library: what it holds, what its operators give, and running one,
// from Python (the NumPy tier) and from XLA. Compiled into every library beside the user's sources.

#include <algorithm>
#include <map>

#include "bireme/op.h"
#include "xla/ffi/api/ffi.h"

namespace {

using paddle::DataType;
using paddle::OpMetaInfo;
using paddle::Tensor;

// A call's fixed part, written by library.py as "<length>:<bytes>" fields: the operator's name and
// stage, a layout per input and per result (-1 one tensor, -2 not given, n a list of n), and
// the attributes' values.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  std::string Text() {
    const size_t colon = rest_.find(':');
    if (colon == std::string_view::npos) PD_THROW("a damaged call");
    const size_t length = std::stoul(std::string(rest_.substr(0, colon)));
    std::string field(rest_.substr(colon + 1, length));
    rest_.remove_prefix(colon + 1 + length);
    return field;
  }
  int64_t Number() { return std::stoll(Text()); }

 private:
  std::string_view rest_;
};

struct Spec {
  const OpMetaInfo* info = nullptr;
  std::vector<int64_t> inputs, outputs;
  std::vector<bireme::Attribute> attributes;
};

Spec ReadSpec(std::string_view text) {
  Reader reader(text);
  const std::string name = reader.Text();
  const int64_t stage = reader.Number();
  Spec spec;
  for (const OpMetaInfo& info : OpMetaInfo::All()) {
    if (info.name == name && info.stage == stage) spec.info = &info;
  }
  if (spec.info == nullptr) PD_THROW("no operator named ", name, " in this library");
  for (std::vector<int64_t>* layouts : {&spec.inputs, &spec.outputs}) {
    const int64_t count = reader.Number();
    for (int64_t i = 0; i < count; ++i) layouts->push_back(reader.Number());
  }
  const int64_t count = reader.Number();
  for (int64_t i = 0; i < count; ++i) {
    bireme::Attribute attribute;
    const int64_t items = reader.Number();
    for (int64_t k = 0; k < items; ++k) attribute.items.push_back(reader.Text());
    spec.attributes.push_back(std::move(attribute));
  }
  return spec;
}

// Flat items in the form that the operator declares.
template <typename Item>
bireme::Arguments<Item> Arrange(const Spec& spec, const std::vector<Item>& flat) {
  bireme::Arguments<Item> made;
  size_t at = 0;
  for (int64_t layout : spec.inputs) {
    bireme::Slot<Item> slot;
    slot.is_list = layout >= 0;
    slot.present = layout != -2;
    const size_t count = layout >= 0 ? static_cast<size_t>(layout) : (layout == -1 ? 1 : 0);
    for (size_t i = 0; i < count; ++i) slot.items.push_back(flat.at(at++));
    made.inputs.push_back(std::move(slot));
  }
  made.attributes = spec.attributes;
  return made;
}

struct Array {
  int32_t type;
  int32_t rank;
  const int64_t* shape;
  void* data;
};

size_t CountOf(int64_t layout) {
  return layout >= 0 ? static_cast<size_t>(layout) : (layout == -1 ? 1 : 0);
}

// For each result, the flat number of the input whose memory it takes over, or -1.
std::vector<int64_t> InPlaceOf(const Spec& spec, size_t results) {
  std::vector<int64_t> from(results, -1);
  for (const auto& [input, output] : spec.info->in_place) {
    size_t in_at = 0, out_at = 0, i = 0, o = 0;
    for (; i < spec.info->inputs.size() && spec.info->inputs[i] != input; ++i) {
      in_at += CountOf(spec.inputs[i]);
    }
    for (; o < spec.info->outputs.size() && spec.info->outputs[o] != output; ++o) {
      out_at += CountOf(spec.outputs[o]);
    }
    if (i == spec.info->inputs.size() || o == spec.info->outputs.size()) {
      PD_THROW("SetInplaceMap names ", input, " and ", output, ", which are not both declared");
    }
    for (size_t k = 0; k < CountOf(spec.inputs[i]); ++k) {
      from[out_at + k] = static_cast<int64_t>(in_at + k);
    }
  }
  return from;
}

void Run(const Spec& spec, const std::vector<Array>& in, const std::vector<Array>& out,
         bireme::Runtime& runtime) {
  const auto wrap = [&](const Array& a, void* data) {
    return Tensor(std::vector<int64_t>(a.shape, a.shape + a.rank), static_cast<DataType>(a.type),
                  runtime.place, std::shared_ptr<void>(data, [](void*) {}));
  };
  const auto bytes = [&](const Array& a) { return wrap(a, a.data).bytes(); };
  const std::vector<int64_t> in_place = InPlaceOf(spec, out.size());
  std::vector<Tensor> inputs;
  for (const Array& a : in) inputs.push_back(wrap(a, a.data));
  std::vector<Tensor> direct(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (in_place[i] >= 0) {
      runtime.Copy(out[i].data, in[in_place[i]].data, bytes(out[i]));
      inputs[in_place[i]] = wrap(out[i], out[i].data);
    }
    direct[i] = wrap(out[i], out[i].data);
    runtime.rooms.push_back({out[i].data, bytes(out[i]), in_place[i] >= 0});
  }
  bireme::Arguments<Tensor> arguments = Arrange(spec, inputs);
  for (size_t i = 0; i < out.size(); ++i) {
    if (in_place[i] < 0) arguments.outputs.push_back(&direct[i]);
  }

  bireme::Runtime*& current = bireme::Runtime::Current();
  bireme::Runtime* const before = std::exchange(current, &runtime);
  std::vector<Tensor> made;
  try {
    made = spec.info->kernel(arguments);
  } catch (...) {
    current = before;
    throw;
  }
  current = before;
  if (arguments.output > 0) return;  // the kernel wrote its results itself

  std::vector<size_t> wanted;  // results that the kernel returned, in order
  for (size_t i = 0; i < out.size(); ++i) {
    if (in_place[i] < 0) wanted.push_back(i);
  }
  size_t declared = 0;  // with those of inputs that were not given
  for (int64_t layout : spec.outputs) declared += std::max<size_t>(CountOf(layout), layout == -2);
  if (made.size() == declared && declared != out.size()) {
    std::vector<Tensor> given;
    size_t at = 0;
    for (int64_t layout : spec.outputs) {
      for (size_t k = 0; k < CountOf(layout); ++k) given.push_back(made[at++]);
      if (layout == -2) ++at;
    }
    made = std::move(given);
  }
  if (made.size() != wanted.size()) {
    PD_THROW("the kernel returned ", made.size(), " tensors, but the operator has ",
             wanted.size(), " results");
  }
  for (size_t k = 0; k < made.size(); ++k) {
    const Array& to = out[wanted[k]];
    const Tensor expected = wrap(to, to.data);
    if (!made[k].initialized() || made[k].dtype() != expected.dtype() ||
        made[k].numel() != expected.numel()) {
      std::ostringstream shown;
      if (made[k].initialized()) {
        shown << made[k].numel() << " elements of " << made[k].dtype();
      } else {
        shown << "an empty tensor";
      }
      PD_THROW("result ", k, " should have ", expected.numel(), " elements of ",
               expected.dtype(), ", but the kernel made ", shown.str(),
               "; see SetInferShapeFn and SetInferDtypeFn");
    }
  }
  // A result may have been made in another result's memory: that one is moved out first.
  std::vector<std::shared_ptr<void>> kept;
  std::vector<const void*> source;
  for (size_t k = 0; k < made.size(); ++k) {
    const void* data = made[k].data();
    const char* first = static_cast<const char*>(data);
    for (size_t other = 0; other < out.size(); ++other) {
      const char* room = static_cast<const char*>(out[other].data);
      const bool inside = first < room + bytes(out[other]) && room < first + made[k].bytes();
      if (inside && !(other == wanted[k] && first == room)) {
        kept.push_back(runtime.Scratch(made[k].bytes()));
        runtime.Copy(kept.back().get(), data, made[k].bytes());
        data = kept.back().get();
        break;
      }
    }
    source.push_back(data);
  }
  for (size_t k = 0; k < made.size(); ++k) {
    runtime.Copy(out[wanted[k]].data, source[k], made[k].bytes());
  }
}

std::string Quoted(const std::string& text) {
  std::string made = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + "\"";
}

std::string List(const std::vector<std::string>& texts) {
  std::string made = "[";
  for (const std::string& text : texts) made += (made.size() > 1 ? ", " : "") + Quoted(text);
  return made + "]";
}

// Runs `body` and puts what it throws into `error`.
template <typename Body>
int Guarded(char* error, size_t room, const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    std::strncpy(error, e.what(), room - 1);
  } catch (...) {
    std::strncpy(error, "the kernel threw something that is not a std::exception", room - 1);
  }
  error[room - 1] = 0;
  return 1;
}

DataType TypeOfBuffer(xla::ffi::DataType type) {
  switch (type) {
    case xla::ffi::PRED: return DataType::BOOL;
    case xla::ffi::S8: return DataType::INT8;
    case xla::ffi::U8: return DataType::UINT8;
    case xla::ffi::S16: return DataType::INT16;
    case xla::ffi::S32: return DataType::INT32;
    case xla::ffi::S64: return DataType::INT64;
    case xla::ffi::F16: return DataType::FLOAT16;
    case xla::ffi::BF16: return DataType::BFLOAT16;
    case xla::ffi::F32: return DataType::FLOAT32;
    case xla::ffi::F64: return DataType::FLOAT64;
    case xla::ffi::C64: return DataType::COMPLEX64;
    case xla::ffi::C128: return DataType::COMPLEX128;
    default: PD_THROW("a type that custom operators do not have");
  }
}

Array FromBuffer(const xla::ffi::AnyBuffer& buffer) {
  const auto shape = buffer.dimensions();
  return {static_cast<int32_t>(TypeOfBuffer(buffer.element_type())),
          static_cast<int32_t>(shape.size()), shape.begin(), buffer.untyped_data()};
}

xla::ffi::Error Handle(std::string_view spec, xla::ffi::RemainingArgs args,
                       xla::ffi::RemainingRets rets, bireme::Runtime& runtime) {
  char error[2048];
  const int failed = Guarded(error, sizeof error, [&] {
    std::vector<Array> in, out;
    for (size_t i = 0; i < args.size(); ++i) {
      in.push_back(FromBuffer(args.get<xla::ffi::AnyBuffer>(i).value()));
    }
    for (size_t i = 0; i < rets.size(); ++i) {
      out.push_back(FromBuffer(*rets.get<xla::ffi::AnyBuffer>(i).value()));
    }
    Run(ReadSpec(spec), in, out, runtime);
  });
  if (failed) return xla::ffi::Error(xla::ffi::ErrorCode::kInternal, error);
  return xla::ffi::Error::Success();
}

xla::ffi::Error OnCpu(std::string_view spec, xla::ffi::RemainingArgs args,
                      xla::ffi::RemainingRets rets) {
  bireme::Runtime runtime;
  return Handle(spec, args, rets, runtime);
}

#ifdef PADDLE_WITH_CUDA
xla::ffi::Error OnGpu(cudaStream_t stream, xla::ffi::ScratchAllocator scratch,
                      std::string_view spec, xla::ffi::RemainingArgs args,
                      xla::ffi::RemainingRets rets) {
  bireme::Runtime runtime;
  runtime.place = paddle::PlaceType::kGPU;
  runtime.stream = stream;
  runtime.owner = &scratch;
  runtime.allocate = [](bireme::Runtime* r, size_t bytes) {
    auto made = static_cast<xla::ffi::ScratchAllocator*>(r->owner)->Allocate(bytes ? bytes : 1);
    if (!made.has_value()) PD_THROW("the device has no memory for ", bytes, " bytes");
    return *made;
  };
  runtime.copy = [](bireme::Runtime* r, void* to, const void* from, size_t bytes) {
    const cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                             static_cast<cudaStream_t>(r->stream));
    if (code != cudaSuccess) PD_THROW(cudaGetErrorString(code));
  };
  runtime.upload = [](bireme::Runtime* r, void* to, const void* from, size_t bytes) {
    const cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice,
                                             static_cast<cudaStream_t>(r->stream));
    if (code != cudaSuccess) PD_THROW(cudaGetErrorString(code));
    cudaStreamSynchronize(static_cast<cudaStream_t>(r->stream));  // `from` is about to go
  };
  return Handle(spec, args, rets, runtime);
}
#endif

}  // namespace

#define BIREME_EXPORT extern "C" __attribute__((visibility("default")))

// JSON: one object per operator and stage.
BIREME_EXPORT const char* bireme_extension_describe() {
  static std::string text;
  text = "[";
  for (const OpMetaInfo& info : OpMetaInfo::All()) {
    std::string pairs = "{";
    for (const auto& [input, output] : info.in_place) {
      pairs += (pairs.size() > 1 ? ", " : "") + Quoted(input) + ": " + Quoted(output);
    }
    text += (text.size() > 1 ? ", " : "") + std::string("{\"name\": ") + Quoted(info.name) +
            ", \"stage\": " + std::to_string(info.stage) + ", \"inputs\": " + List(info.inputs) +
            ", \"outputs\": " + List(info.outputs) + ", \"attributes\": " +
            List(info.attributes) + ", \"in_place\": " + pairs + "}, \"kernel\": " +
            (info.kernel ? "true" : "false") + ", \"shapes\": " +
            (info.shapes ? "true" : "false") + ", \"types\": " + (info.types ? "true" : "false") +
            "}";
  }
  text += "]";
  return text.c_str();
}

// Writes the number of shapes, each with its rank first, then the number of types and the types
// (either number is -1 where the operator has no such function).
BIREME_EXPORT int bireme_extension_infer(const char* spec_text, size_t length, const Array* in,
                                         int64_t count, int64_t* out, size_t room, char* error,
                                         size_t error_room) {
  return Guarded(error, error_room, [&] {
    const Spec spec = ReadSpec({spec_text, length});
    std::vector<bireme::Shape> shapes;
    std::vector<DataType> types;
    for (int64_t i = 0; i < count; ++i) {
      shapes.emplace_back(in[i].shape, in[i].shape + in[i].rank);
      types.push_back(static_cast<DataType>(in[i].type));
    }
    size_t at = 0;
    const auto put = [&](int64_t value) {
      if (at >= room) PD_THROW("too many or too large results");
      out[at++] = value;
    };
    if (spec.info->shapes == nullptr) {
      put(-1);
    } else {
      auto arguments = Arrange(spec, shapes);
      const auto found = spec.info->shapes(arguments);
      put(static_cast<int64_t>(found.size()));
      for (const bireme::Shape& shape : found) {
        put(static_cast<int64_t>(shape.size()));
        for (int64_t size : shape) put(size);
      }
    }
    if (spec.info->types == nullptr) {
      put(-1);
    } else {
      auto arguments = Arrange(spec, types);
      const auto found = spec.info->types(arguments);
      put(static_cast<int64_t>(found.size()));
      for (DataType type : found) put(static_cast<int64_t>(type));
    }
  });
}

BIREME_EXPORT int bireme_extension_run(const char* spec_text, size_t length, const Array* in,
                                       int64_t in_count, const Array* out, int64_t out_count,
                                       char* error, size_t error_room) {
  return Guarded(error, error_room, [&] {
    bireme::Runtime runtime;
    Run(ReadSpec({spec_text, length}), {in, in + in_count}, {out, out + out_count}, runtime);
  });
}

// XLA_FFI_DEFINE_HANDLER_SYMBOL makes no visible symbols under -fvisibility=hidden.
#pragma GCC visibility push(default)
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_extension_cpu, OnCpu,
                              xla::ffi::Ffi::Bind()
                                  .Attr<std::string_view>("spec")
                                  .RemainingArgs()
                                  .RemainingRets());
#ifdef PADDLE_WITH_CUDA
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_extension_gpu, OnGpu,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Ctx<xla::ffi::ScratchAllocator>()
                                  .Attr<std::string_view>("spec")
                                  .RemainingArgs()
                                  .RemainingRets());
#endif
#pragma GCC visibility pop
