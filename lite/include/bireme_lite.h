/* Bireme Lite: runs models that `bireme export --lite` wrote.
 *
 * Every function that can fail returns 0 (or NULL); bl_error() then says why. A model is used by
 * one thread at a time; different models are independent of each other.
 */
#ifndef BIREME_LITE_H
#define BIREME_LITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define BL_API __declspec(dllexport)
#else
#define BL_API __attribute__((visibility("default")))
#endif

#define BL_MAX_RANK 8

typedef enum {
  BL_BOOL = 0, BL_UINT8 = 1, BL_INT8 = 2, BL_INT32 = 3, BL_UINT32 = 4, BL_INT64 = 5,
  BL_FLOAT32 = 6, BL_FLOAT64 = 7
} bl_type;

typedef struct bl_model bl_model;

typedef struct {
  int32_t threads;          /* 0 or 1: the caller's thread alone */
  int64_t memory_limit;     /* bytes that values may take; 0: 64 GiB */
  int64_t step_limit;       /* turns of all loops in one run; 0: no limit */
  const char *instructions; /* NULL: the best that the machine has; else "baseline", "avx2" ... */
} bl_options;

typedef struct {
  const char *name;
  bl_type type;
  int32_t rank;
  int64_t dims[BL_MAX_RANK]; /* -1: open, until bl_resize says it */
} bl_tensor;

/* `options` may be NULL. On failure the reason is written to `error`, of `error_size` bytes. */
BL_API bl_model *bl_open_file(const char *path, const bl_options *options, char *error,
                              size_t error_size);
/* The memory must stay as it is until bl_close; 64-byte aligned memory is used where it lies. */
BL_API bl_model *bl_open_memory(const void *data, size_t size, const bl_options *options,
                                char *error, size_t error_size);
BL_API void bl_close(bl_model *model);
BL_API const char *bl_error(const bl_model *model);

BL_API int32_t bl_input_count(const bl_model *model);
BL_API int32_t bl_output_count(const bl_model *model);
/* Inputs as declared before bl_resize and as resized after it; outputs have sizes after it. */
BL_API int bl_input(const bl_model *model, int32_t index, bl_tensor *tensor);
BL_API int bl_output(const bl_model *model, int32_t index, bl_tensor *tensor);
/* The shapes of all inputs, one after the other. Plans memory; not needed if no size is open. */
BL_API int bl_resize(bl_model *model, const int64_t *const *dims);
/* Contiguous inputs, which are only read. */
BL_API int bl_run(bl_model *model, const void *const *inputs);
/* A result of the last run, until the next call with this model. */
BL_API const void *bl_output_data(const bl_model *model, int32_t index);
/* Bytes that values take at the sizes now planned. */
BL_API int64_t bl_memory(const bl_model *model);
/* The version, and the instruction set that a model uses (NULL: the best of this machine). */
BL_API const char *bl_version(void);
BL_API const char *bl_instructions(const bl_model *model);

#ifdef __cplusplus
}
#endif
#endif
