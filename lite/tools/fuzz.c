/* lite_fuzz COUNT SEED MODEL... : opens and runs COUNT damaged copies of model files.
 *
 * Built with sanitizers, which end it at the first access that is wrong. Each copy has bytes, words
 * or runs of its head changed, or is cut; what can still be opened is run on numbers from a file's
 * worth of noise, at its own sizes or at small ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bireme_lite.h"

static uint64_t state;

static uint64_t draw(void) { /* xorshift* */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 2685821657736338717ull;
}

static uint64_t below(uint64_t n) { return n ? draw() % n : 0; }

static void damage(unsigned char *data, size_t size, size_t head) {
  for (uint64_t k = 1 + below(6); k; k--) {
    size_t at = below(below(20) ? head : size);
    uint64_t value = below(3) ? below(16) : draw();
    if (below(4) == 0) value = (uint64_t)-1 >> below(60);
    size_t width = (size_t)1 << below(4);
    if (below(2)) at &= ~(width - 1);
    if (at + width > size) continue;
    if (below(3) == 0) {
      data[at] ^= (unsigned char)(1u << below(8));
    } else if (below(6) == 0 && size - at > 64) {
      memmove(data + at, data + below(size - 64), below(64));
    } else {
      memcpy(data + at, &value, width);
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  long opened = 0, ran = 0, count = atol(argv[1]);
  state = strtoull(argv[2], NULL, 10) * 2 + 1;
  static char noise[1 << 22];
  for (size_t i = 0; i < sizeof noise; i += 8) {
    uint64_t v = draw() & 0x3f7fffff3f7fffffull;
    memcpy(noise + i, &v, 8);
  }
  bl_options options = {0, 1 << 26, 50, NULL};
  for (long turn = 0; turn < count; turn++) {
    FILE *file = fopen(argv[3 + turn % (argc - 3)], "rb");
    if (!file) return 2;
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    void *memory = NULL;
    if (posix_memalign(&memory, 64, size + 1) || fread(memory, 1, size, file) != size) return 2;
    fclose(file);
    uint64_t head = 0;
    memcpy(&head, (char *)memory + size - 8, 8);
    damage(memory, size, head < size ? head : size);
    if (below(50) == 0) size = below(size);
    char error[64];
    options.threads = below(20) ? 0 : 2;
    bl_model *model = bl_open_memory(memory, size, &options, error, sizeof error);
    if (model) {
      opened++;
      static int64_t dims[256][BL_MAX_RANK];
      const int64_t *rows[256];
      const void *inputs[256];
      int32_t n = bl_input_count(model);
      int fits = n <= 256;
      int64_t open = 1 + (int64_t)below(4);
      for (int32_t i = 0; i < n && fits; i++) {
        bl_tensor t;
        bl_input(model, i, &t);
        uint64_t elements = 8;
        for (int d = 0; d < t.rank; d++) {
          dims[i][d] = t.dims[d] < 0 ? open : t.dims[d];
          if (dims[i][d] > 1 << 22) fits = 0;
          elements *= (uint64_t)dims[i][d];
          if (elements > sizeof noise) fits = 0;
        }
        rows[i] = dims[i];
        inputs[i] = noise;
      }
      if (fits && bl_resize(model, rows)) ran += bl_run(model, inputs);
    }
    bl_close(model);
    free(memory);
  }
  printf("%ld files, %ld opened, %ld ran\n", count, opened, ran);
  return 0;
}
