// The recurrence of a GRU layer, forward and backward, as XLA FFI handlers.
// Gate order: reset, update, candidate; the reset gate acts on the recurrent product with its bias.

#include "recurrent.h"

namespace bireme {
namespace {

// projected [T, B, 3H] (input projection with its bias), w_hh [3H, H], b_hh [3H], h0 [B, H] ->
// y [T, B, H], h [B, H], gates [T, B, 4H]: reset, update, candidate, and the candidate's recurrent
// part before it is reset.
ffi::Error Forward(ffi::ThreadPool pool, Floats projected, Floats w_hh, Floats b_hh, Floats h0,
                   Lengths lengths, Result y, Result last, Result gates, bool reverse) {
  auto d = projected.dimensions();
  const int64_t steps = d[0], batch = d[1], width = d[2], hidden = width / 3, wide = 4 * hidden;
  Buffer panels = Allocate(hidden * width);
  PackPanels(w_hh.typed_data(), hidden, width, true, panels.get());
  OverBatch(pool, batch, [&](int64_t first, int64_t rows) {
    float* h = last->typed_data() + first * hidden;  // also the running state
    CopyRows(h0.typed_data() + first * hidden, h, rows, hidden);
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t t = StepAt(s, steps, reverse), at = t * batch + first;
      float* g = gates->typed_data() + at * wide;
      float* out = y->typed_data() + at * hidden;
      Multiply(rows, h, hidden, panels.get(), hidden, width, b_hh.typed_data(), 0, g, wide);
      for (int64_t row = 0; row < rows; ++row) {
        const bool runs = t < lengths.typed_data()[first + row];
        const float* x = projected.typed_data() + (at + row) * width;
        float* gr = g + row * wide;
        for (int64_t j = 0; j < hidden; j += kLanes) {
          const Vec inner = Load(gr + 2 * hidden + j);
          const Vec r = Sigmoid(Load(x + j) + Load(gr + j));
          const Vec z = Sigmoid(Load(x + hidden + j) + Load(gr + hidden + j));
          const Vec c = Tanh(Load(x + 2 * hidden + j) + r * inner);
          const Vec state = (Load(h + row * hidden + j) - c) * z + c;
          Store(gr + j, r);
          Store(gr + hidden + j, z);
          Store(gr + 2 * hidden + j, c);
          Store(gr + 3 * hidden + j, inner);
          Store(out + row * hidden + j, runs ? state : Vec{});
          if (runs) Store(h + row * hidden + j, state);
        }
      }
    }
  });
  return ffi::Error::Success();
}

// dy [T, B, H], dh [B, H] (of the last state), gates, before [T, B, H] (the state that every step
// started from), w_hh -> the gradients of the input's part [T, B, 3H] and of the recurrent product
// [T, B, 3H], and dh0.
ffi::Error Backward(ffi::ThreadPool pool, Floats dy, Floats dh_last, Floats gates, Floats before,
                    Floats w_hh, Lengths lengths, Result d_projected, Result d_recurrent, Result dh0,
                    bool reverse) {
  auto d = gates.dimensions();
  const int64_t steps = d[0], batch = d[1], wide = d[2], hidden = wide / 4, width = 3 * hidden;
  Buffer panels = Allocate(hidden * width);
  PackPanels(w_hh.typed_data(), width, hidden, false, panels.get());
  OverBatch(pool, batch, [&](int64_t first, int64_t rows) {
    float* dh = dh0->typed_data() + first * hidden;  // also the running gradient
    CopyRows(dh_last.typed_data() + first * hidden, dh, rows, hidden);
    for (int64_t s = steps - 1; s >= 0; --s) {
      const int64_t t = StepAt(s, steps, reverse), at = t * batch + first;
      float* inner_pulls = d_recurrent->typed_data() + at * width;
      for (int64_t row = 0; row < rows; ++row) {
        const float* gr = gates.typed_data() + (at + row) * wide;
        float* dx = d_projected->typed_data() + (at + row) * width;
        float* dr = inner_pulls + row * width;
        if (t >= lengths.typed_data()[first + row]) {
          std::fill_n(dx, width, 0.0f);  // the running gradient passes by
          std::fill_n(dr, width, 0.0f);
          continue;
        }
        const float* old = before.typed_data() + (at + row) * hidden;
        const float* from_y = dy.typed_data() + (at + row) * hidden;
        for (int64_t j = 0; j < hidden; j += kLanes) {
          const Vec r = Load(gr + j), z = Load(gr + hidden + j);
          const Vec c = Load(gr + 2 * hidden + j), inner = Load(gr + 3 * hidden + j);
          const Vec h = Load(dh + row * hidden + j) + Load(from_y + j);
          const Vec pull_c = h * (1.0f - z) * (1.0f - c * c);
          const Vec pull_r = pull_c * inner * r * (1.0f - r);
          const Vec pull_z = h * (Load(old + j) - c) * z * (1.0f - z);
          Store(dx + j, pull_r);
          Store(dx + hidden + j, pull_z);
          Store(dx + 2 * hidden + j, pull_c);
          Store(dr + j, pull_r);
          Store(dr + hidden + j, pull_z);
          Store(dr + 2 * hidden + j, pull_c * r);
          Store(dh + row * hidden + j, h * z);
        }
      }
      Multiply(rows, inner_pulls, width, panels.get(), width, hidden, dh, hidden, dh, hidden);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_gru_forward, Forward,
                              FloatRets<3>(BindFloats<4>().Arg<Lengths>()).Attr<bool>("reverse"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_gru_backward, Backward,
                              FloatRets<3>(BindFloats<5>().Arg<Lengths>()).Attr<bool>("reverse"));

}  // namespace bireme
