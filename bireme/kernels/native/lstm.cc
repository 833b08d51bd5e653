// The recurrence of an LSTM layer, forward and backward, as XLA FFI handlers.
// Gate order: input, forget, cell, output.

#include "recurrent.h"

namespace bireme {
namespace {

// projected [T, B, 4H] (input projection with both biases), w_hh [4H, H], h0, c0 [B, H] ->
// y [T, B, H], h [B, H], cells [T, B, H] (held where a sequence has ended), gates [T, B, 4H] (after
// their activations).
ffi::Error Forward(ffi::ThreadPool pool, Floats projected, Floats w_hh, Floats h0, Floats c0,
                   Lengths lengths, Result y, Result last, Result cells, Result gates, bool reverse) {
  auto d = projected.dimensions();
  const int64_t steps = d[0], batch = d[1], width = d[2], hidden = width / 4;
  Buffer panels = Allocate(hidden * width);
  PackPanels(w_hh.typed_data(), hidden, width, true, panels.get());
  OverBatch(pool, batch, [&](int64_t first, int64_t rows) {
    float* h = last->typed_data() + first * hidden;  // also the running state
    CopyRows(h0.typed_data() + first * hidden, h, rows, hidden);
    const float* c = c0.typed_data() + first * hidden;
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t t = StepAt(s, steps, reverse), at = t * batch + first;
      float* g = gates->typed_data() + at * width;
      float* out = y->typed_data() + at * hidden;
      float* new_c = cells->typed_data() + at * hidden;
      Multiply(rows, h, hidden, panels.get(), hidden, width, projected.typed_data() + at * width, width, g,
               width);
      for (int64_t r = 0; r < rows; ++r) {
        const bool runs = t < lengths.typed_data()[first + r];
        float* gr = g + r * width;
        for (int64_t j = 0; j < hidden; j += kLanes) {
          const Vec i = Sigmoid(Load(gr + j)), f = Sigmoid(Load(gr + hidden + j));
          const Vec u = Tanh(Load(gr + 2 * hidden + j)), o = Sigmoid(Load(gr + 3 * hidden + j));
          const Vec cell = f * Load(c + r * hidden + j) + i * u;
          const Vec state = o * Tanh(cell);
          Store(gr + j, i);
          Store(gr + hidden + j, f);
          Store(gr + 2 * hidden + j, u);
          Store(gr + 3 * hidden + j, o);
          Store(new_c + r * hidden + j, runs ? cell : Load(c + r * hidden + j));
          Store(out + r * hidden + j, runs ? state : Vec{});
          if (runs) Store(h + r * hidden + j, state);
        }
      }
      c = new_c;
    }
  });
  return ffi::Error::Success();
}

// dy [T, B, H], dh, dc [B, H] (of the last state), gates, cells, c0, w_hh ->
// d_projected [T, B, 4H], dh0, dc0.
ffi::Error Backward(ffi::ThreadPool pool, Floats dy, Floats dh_last, Floats dc_last, Floats gates,
                    Floats cells, Floats c0, Floats w_hh, Lengths lengths, Result d_projected, Result dh0,
                    Result dc0, bool reverse) {
  auto d = gates.dimensions();
  const int64_t steps = d[0], batch = d[1], width = d[2], hidden = width / 4;
  Buffer panels = Allocate(hidden * width);
  PackPanels(w_hh.typed_data(), width, hidden, false, panels.get());
  OverBatch(pool, batch, [&](int64_t first, int64_t rows) {
    float* dh = dh0->typed_data() + first * hidden;  // also the running gradients
    float* dc = dc0->typed_data() + first * hidden;
    CopyRows(dh_last.typed_data() + first * hidden, dh, rows, hidden);
    CopyRows(dc_last.typed_data() + first * hidden, dc, rows, hidden);
    for (int64_t s = steps - 1; s >= 0; --s) {
      const int64_t t = StepAt(s, steps, reverse), at = t * batch + first;
      const int64_t before = ((reverse ? t + 1 : t - 1) * batch) + first;
      const float* old_c = s == 0 ? c0.typed_data() + first * hidden : cells.typed_data() + before * hidden;
      const float* g = gates.typed_data() + at * width;
      float* dg = d_projected->typed_data() + at * width;
      for (int64_t r = 0; r < rows; ++r) {
        const float* gr = g + r * width;
        float* dr = dg + r * width;
        if (t >= lengths.typed_data()[first + r]) {
          std::fill_n(dr, width, 0.0f);  // the running gradients pass by
          continue;
        }
        for (int64_t j = 0; j < hidden; j += kLanes) {
          const Vec i = Load(gr + j), f = Load(gr + hidden + j);
          const Vec u = Load(gr + 2 * hidden + j), o = Load(gr + 3 * hidden + j);
          const Vec squashed = Tanh(Load(cells.typed_data() + (at + r) * hidden + j));
          const Vec h = Load(dh + r * hidden + j) + Load(dy.typed_data() + (at + r) * hidden + j);
          const Vec c = Load(dc + r * hidden + j) + h * o * (1.0f - squashed * squashed);
          Store(dr + j, c * u * i * (1.0f - i));
          Store(dr + hidden + j, c * Load(old_c + r * hidden + j) * f * (1.0f - f));
          Store(dr + 2 * hidden + j, c * i * (1.0f - u * u));
          Store(dr + 3 * hidden + j, h * squashed * o * (1.0f - o));
          Store(dc + r * hidden + j, c * f);
          Store(dh + r * hidden + j, Vec{});
        }
      }
      Multiply(rows, dg, width, panels.get(), width, hidden, dh, hidden, dh, hidden);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_lstm_forward, Forward,
                              FloatRets<4>(BindFloats<4>().Arg<Lengths>()).Attr<bool>("reverse"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_lstm_backward, Backward,
                              FloatRets<3>(BindFloats<7>().Arg<Lengths>()).Attr<bool>("reverse"));

}  // namespace bireme
