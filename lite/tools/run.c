/* lite_run MODEL OUTPUT INPUT... : runs a model once.
 *
 * Each input is a file of raw numbers, with its shape in front as text: 1x3x224x224:image.bin.
 * All results are written to OUTPUT, one after the other, as raw numbers.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bireme_lite.h"

static const int kSizes[] = {1, 1, 1, 4, 4, 8, 4, 8};

static void *read_file(const char *path, size_t bytes) {
  FILE *file = fopen(path, "rb");
  void *data = malloc(bytes ? bytes : 1);
  if (!file || !data || fread(data, 1, bytes, file) != bytes) {
    fprintf(stderr, "lite_run: %s does not hold %zu bytes\n", path, bytes);
    exit(1);
  }
  fclose(file);
  return data;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: lite_run MODEL OUTPUT 1x3x224x224:image.bin ...\n");
    return 2;
  }
  char error[256];
  bl_model *model = bl_open_file(argv[1], NULL, error, sizeof error);
  if (!model) {
    fprintf(stderr, "lite_run: %s\n", error);
    return 1;
  }
  int32_t count = bl_input_count(model);
  if (argc != 3 + count || count > 64) {
    fprintf(stderr, "lite_run: the model takes %d inputs\n", count);
    return 2;
  }
  int64_t dims[64][BL_MAX_RANK];
  const int64_t *rows[64];
  const void *inputs[64];
  for (int32_t i = 0; i < count; i++) {
    bl_tensor t;
    bl_input(model, i, &t);
    char *at = argv[3 + i];
    size_t bytes = kSizes[t.type];
    for (int32_t d = 0; d < t.rank; d++, at++) {
      dims[i][d] = strtoll(at, &at, 10);
      bytes *= (size_t)dims[i][d];
      if (*at != (d == t.rank - 1 ? ':' : 'x')) {
        fprintf(stderr, "lite_run: %s needs %d sizes\n", t.name, t.rank);
        return 2;
      }
    }
    if (t.rank == 0 && *at == ':') at++;
    rows[i] = dims[i];
    inputs[i] = read_file(at, bytes);
  }
  if (!bl_resize(model, rows) || !bl_run(model, inputs)) {
    fprintf(stderr, "lite_run: %s\n", bl_error(model));
    return 1;
  }
  FILE *out = fopen(argv[2], "wb");
  for (int32_t i = 0; out && i < bl_output_count(model); i++) {
    bl_tensor t;
    bl_output(model, i, &t);
    size_t elements = 1;
    for (int32_t d = 0; d < t.rank; d++) elements *= (size_t)t.dims[d];
    if (fwrite(bl_output_data(model, i), kSizes[t.type], elements, out) != elements) return 1;
  }
  for (int32_t i = 0; i < count; i++) free((void *)inputs[i]);
  bl_close(model);
  return out && fclose(out) == 0 ? 0 : 1;
}
