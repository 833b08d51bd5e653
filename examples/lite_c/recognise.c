/* Reads one line of text in a picture, with PP-OCR's recogniser in Bireme Lite.
 *
 *   bireme export ppocr-v6-tiny-recognise --lite recognise.blm
 *   cc -Ilite/include examples/lite_c/recognise.c -Lbuild/lite -lbireme_lite -lm -o recognise
 *   ./recognise recognise.blm ppocr-v6-tiny-recognise.txt line.ppm
 *
 * Both names are files of bireme/ocr/weights. The picture is a binary PPM (P6) of one line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bireme_lite.h"

enum { HEIGHT = 48, MAX_WIDTH = 3200, MAX_CHARACTERS = 20000 };

static void fail(const char *what, const char *why) {
  fprintf(stderr, "recognise: %s: %s\n", what, why);
  exit(1);
}

static unsigned char *read_ppm(const char *path, int *width, int *height) {
  FILE *file = fopen(path, "rb");
  int most;
  if (!file || fscanf(file, "P6 %d %d %d", width, height, &most) != 3 || most != 255 ||
      *width < 1 || *height < 1 || *width > 20000 || *height > 20000)
    fail(path, "no binary PPM with one byte per colour");
  fgetc(file);
  size_t bytes = (size_t)*width * *height * 3;
  unsigned char *pixels = malloc(bytes);
  if (!pixels || fread(pixels, 1, bytes, file) != bytes) fail(path, "the picture is cut off");
  fclose(file);
  return pixels;
}

/* The picture at the net's height: blue, green, red, from -1 to 1, blended between pixels. */
static float *prepared(const unsigned char *pixels, int width, int height, int made) {
  float *image = malloc(sizeof(float) * 3 * HEIGHT * made);
  if (!image) fail("picture", "there is no memory");
  for (int y = 0; y < HEIGHT; y++) {
    for (int x = 0; x < made; x++) {
      float sy = (y + 0.5f) * height / HEIGHT - 0.5f, sx = (x + 0.5f) * width / made - 0.5f;
      if (sy < 0) sy = 0;
      if (sx < 0) sx = 0;
      int y0 = (int)sy, x0 = (int)sx;
      if (y0 > height - 1) y0 = height - 1;
      if (x0 > width - 1) x0 = width - 1;
      int y1 = y0 + (y0 < height - 1), x1 = x0 + (x0 < width - 1);
      float fy = sy - y0, fx = sx - x0;
      for (int c = 0; c < 3; c++) {
        const unsigned char *p = pixels + (2 - c);
        float top = p[3 * (y0 * width + x0)] * (1 - fx) + p[3 * (y0 * width + x1)] * fx;
        float low = p[3 * (y1 * width + x0)] * (1 - fx) + p[3 * (y1 * width + x1)] * fx;
        image[(c * HEIGHT + y) * made + x] = (top * (1 - fy) + low * fy) / 127.5f - 1;
      }
    }
  }
  return image;
}

/* One character per line; the space comes after the last. */
static int read_characters(const char *path, char (*characters)[8]) {
  FILE *file = fopen(path, "rb");
  char line[64];
  int count = 0;
  if (!file) fail(path, "cannot be read");
  while (count < MAX_CHARACTERS - 1 && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = 0;
    snprintf(characters[count++], sizeof characters[0], "%.7s", line);
  }
  fclose(file);
  strcpy(characters[count++], " ");
  return count;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: recognise MODEL CHARACTERS LINE.ppm\n");
    return 2;
  }
  char error[256];
  bl_model *model = bl_open_file(argv[1], NULL, error, sizeof error);
  if (!model) fail(argv[1], error);

  int width, height;
  unsigned char *pixels = read_ppm(argv[3], &width, &height);
  long long wanted = ((long long)width * HEIGHT + height - 1) / height;
  int made = wanted < 16 ? 16 : wanted > MAX_WIDTH ? MAX_WIDTH : (int)wanted;
  float *image = prepared(pixels, width, height, made);

  const int64_t shape[] = {1, 3, HEIGHT, made};
  const int64_t *shapes[] = {shape};
  const void *inputs[] = {image};
  bl_tensor t;
  if (bl_input_count(model) != 1 || !bl_input(model, 0, &t) || t.rank != 4 ||
      t.type != BL_FLOAT32 || bl_output_count(model) != 1)
    fail(argv[1], "no recogniser");
  if (!bl_resize(model, shapes) || !bl_run(model, inputs)) fail(argv[1], bl_error(model));
  bl_output(model, 0, &t);
  if (t.rank != 3 || t.type != BL_FLOAT32) fail(argv[1], "no recogniser");

  /* The best class of each column; repeated ones count once, and class 0 says nothing. */
  static char characters[MAX_CHARACTERS][8];
  int known = read_characters(argv[2], characters), before = 0;
  const float *scores = bl_output_data(model, 0);
  for (int64_t column = 0; column < t.dims[1]; column++, scores += t.dims[2]) {
    int best = 0;
    for (int k = 1; k < t.dims[2]; k++)
      if (scores[k] > scores[best]) best = k;
    if (best && best != before && best <= known) fputs(characters[best - 1], stdout);
    before = best;
  }
  putchar('\n');
  free(image);
  free(pixels);
  bl_close(model);
  return 0;
}
