// The recurrence of a plain recurrent layer, forward and backward, as XLA FFI handlers.

#include "recurrent.h"

namespace bireme {
namespace {

// projected [T, B, H] (input projection with both biases), w_hh [H, H], h0 [B, H] ->
// y [T, B, H], h [B, H]. The activation is tanh, or max(x, 0) where `relu`.
ffi::Error Forward(ffi::ThreadPool pool, Floats projected, Floats w_hh, Floats h0, Lengths lengths,
                   Result y, Result last, bool reverse, bool relu) {
  auto d = projected.dimensions();
  const int64_t steps = d[0], batch = d[1], hidden = d[2];
  Buffer panels = Allocate(hidden * hidden);
  PackPanels(w_hh.typed_data(), hidden, hidden, true, panels.get());
  OverBatch(pool, batch, [&](int64_t first, int64_t rows) {
    float* h = last->typed_data() + first * hidden;  // also the running state
    CopyRows(h0.typed_data() + first * hidden, h, rows, hidden);
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t t = StepAt(s, steps, reverse), at = (t * batch + first) * hidden;
      float* out = y->typed_data() + at;
      Multiply(rows, h, hidden, panels.get(), hidden, hidden, projected.typed_data() + at, hidden, out,
               hidden);
      for (int64_t r = 0; r < rows; ++r) {
        const bool runs = t < lengths.typed_data()[first + r];
        for (int64_t j = r * hidden; j < (r + 1) * hidden; j += kLanes) {
          const Vec total = Load(out + j);
          const Vec state = relu ? (total < Vec{} ? Vec{} : total) : Tanh(total);
          Store(out + j, runs ? state : Vec{});
          if (runs) Store(h + j, state);
        }
      }
    }
  });
  return ffi::Error::Success();
}

// dy [T, B, H], dh [B, H] (of the last state), y, w_hh -> d_projected [T, B, H], dh0.
ffi::Error Backward(ffi::ThreadPool pool, Floats dy, Floats dh_last, Floats y, Floats w_hh,
                    Lengths lengths, Result d_projected, Result dh0, bool reverse, bool relu) {
  auto d = y.dimensions();
  const int64_t steps = d[0], batch = d[1], hidden = d[2];
  Buffer panels = Allocate(hidden * hidden);
  PackPanels(w_hh.typed_data(), hidden, hidden, false, panels.get());
  OverBatch(pool, batch, [&](int64_t first, int64_t rows) {
    float* dh = dh0->typed_data() + first * hidden;  // also the running gradient
    CopyRows(dh_last.typed_data() + first * hidden, dh, rows, hidden);
    for (int64_t s = steps - 1; s >= 0; --s) {
      const int64_t t = StepAt(s, steps, reverse), at = (t * batch + first) * hidden;
      float* pulls = d_projected->typed_data() + at;
      for (int64_t r = 0; r < rows; ++r) {
        if (t >= lengths.typed_data()[first + r]) {
          std::fill_n(pulls + r * hidden, hidden, 0.0f);  // the running gradient passes by
          continue;
        }
        for (int64_t j = r * hidden; j < (r + 1) * hidden; j += kLanes) {
          const Vec state = Load(y.typed_data() + at + j);
          const Vec slope = relu ? (state > Vec{} ? Splat(1.0f) : Vec{}) : 1.0f - state * state;
          Store(pulls + j, (Load(dh + j) + Load(dy.typed_data() + at + j)) * slope);
          Store(dh + j, Vec{});
        }
      }
      Multiply(rows, pulls, hidden, panels.get(), hidden, hidden, dh, hidden, dh, hidden);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_simple_rnn_forward, Forward,
                              FloatRets<2>(BindFloats<3>().Arg<Lengths>())
                                  .Attr<bool>("reverse")
                                  .Attr<bool>("relu"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_simple_rnn_backward, Backward,
                              FloatRets<2>(BindFloats<4>().Arg<Lengths>())
                                  .Attr<bool>("reverse")
                                  .Attr<bool>("relu"));

}  // namespace bireme
