// The C interface.
#include <stdio.h>

#ifndef __wasm__
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "../kernels/kernels.h"
#include "threads.h"

#ifndef LITE_VERSION
#define LITE_VERSION "0.1.0"
#endif

struct bl_model {
  lite::Model model;
  char* copy = nullptr;  // of memory that was not aligned
  void* mapped = nullptr;
  size_t mapped_size = 0;
  lite::Array<const int64_t*> sizes;
};

namespace {

void say(char* error, size_t size, const char* text) {
  if (error && size) snprintf(error, size, "%s", text);
}

bool has_open_size(const lite::Model& m) { return m.symbols.size > 0; }

bool resize_to_declared(bl_model* made) {
  lite::Model& m = made->model;
  lite::Graph& g = m.graphs[0];
  if (!made->sizes.make(g.inputs.size)) return m.fail("there is no memory");
  for (int64_t i = 0; i < g.inputs.size; i++) made->sizes[i] = g.values[g.inputs[i]].declared;
  return has_open_size(m) || lite::plan(m, made->sizes.data);
}

bool describe(const lite::Model& m, const lite::Value& v, const char* name, bl_tensor* out) {
  out->name = name;
  out->type = static_cast<bl_type>(v.tensor.type);
  out->rank = v.tensor.rank;
  for (int i = 0; i < v.tensor.rank; i++) {
    bool open = v.declared[i] < lite::kExpression + lite::kExpressions;
    out->dims[i] = m.planned ? v.tensor.dims[i] : open ? -1 : v.declared[i];
  }
  return true;
}

}  // namespace

extern "C" {

bl_model* bl_open_memory(const void* data, size_t size, const bl_options* options, char* error,
                         size_t error_size) {
  auto* made = static_cast<bl_model*>(calloc(1, sizeof(bl_model)));
  if (!made) {
    say(error, error_size, "there is no memory");
    return nullptr;
  }
  new (made) bl_model();
  lite::Model& m = made->model;
  bl_options none = {};
  if (!options) options = &none;
  m.threads = options->threads > 1 ? (options->threads < 64 ? options->threads : 64) : 1;
  if (options->memory_limit > 0) m.memory_limit = options->memory_limit;
  m.step_limit = options->step_limit;
  m.kernels = lite::find_kernels(options->instructions);
  if (!m.kernels) m.fail("this machine or library has no instructions '%s'", options->instructions);
  if (m.threads > 1) m.pool = lite::make_pool(m.threads);
  if (reinterpret_cast<uintptr_t>(data) % lite::kAlign) {
    made->copy = lite::aligned_memory(static_cast<int64_t>(size));
    if (!made->copy) m.fail("there is no memory");
    else memcpy(made->copy, data, size);
    data = made->copy;
  }
  if (m.error[0] || !lite::load(m, static_cast<const uint8_t*>(data), size) ||
      !resize_to_declared(made)) {
    say(error, error_size, m.error);
    bl_close(made);
    return nullptr;
  }
  return made;
}

#ifdef __wasm__  // pages have no files
bl_model* bl_open_file(const char*, const bl_options*, char* error, size_t error_size) {
  say(error, error_size, "there are no files here: use bl_open_memory");
  return nullptr;
}
#else
bl_model* bl_open_file(const char* path, const bl_options* options, char* error,
                       size_t error_size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  void* mapped = MAP_FAILED;
  size_t size = 0;
  if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    size = static_cast<size_t>(info.st_size);
    mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  }
  if (file >= 0) close(file);
  if (mapped == MAP_FAILED) {
    say(error, error_size, "the file cannot be read");
    return nullptr;
  }
  bl_model* made = bl_open_memory(mapped, size, options, error, error_size);
  if (!made) {
    munmap(mapped, size);
    return nullptr;
  }
  made->mapped = mapped;
  made->mapped_size = size;
  return made;
}
#endif

void bl_close(bl_model* model) {
  if (!model) return;
  lite::free_pool(model->model.pool);
  free(model->model.arena);
  free(model->copy);
#ifndef __wasm__
  if (model->mapped) munmap(model->mapped, model->mapped_size);
#endif
  model->~bl_model();
  free(model);
}

const char* bl_error(const bl_model* model) { return model->model.error; }

int32_t bl_input_count(const bl_model* model) {
  return static_cast<int32_t>(model->model.graphs[0].inputs.size);
}

int32_t bl_output_count(const bl_model* model) {
  return static_cast<int32_t>(model->model.graphs[0].outputs.size);
}

int bl_input(const bl_model* model, int32_t index, bl_tensor* tensor) {
  const lite::Graph& g = model->model.graphs[0];
  if (index < 0 || index >= g.inputs.size) return 0;
  return describe(model->model, g.values[g.inputs[index]], model->model.input_names[index].data,
                  tensor);
}

int bl_output(const bl_model* model, int32_t index, bl_tensor* tensor) {
  const lite::Graph& g = model->model.graphs[0];
  if (index < 0 || index >= g.outputs.size) return 0;
  return describe(model->model, g.values[g.outputs[index]], model->model.output_names[index].data,
                  tensor);
}

int bl_resize(bl_model* model, const int64_t* const* dims) {
  model->model.error[0] = 0;
  return lite::plan(model->model, dims);
}

int bl_run(bl_model* model, const void* const* inputs) {
  lite::Model& m = model->model;
  m.error[0] = 0;
  m.ran = false;
  m.steps = 0;
  if (!m.planned) return m.fail("the model has open sizes: call bl_resize first");
  lite::Graph& g = m.graphs[0];
  for (int64_t i = 0; i < g.inputs.size; i++)
    g.values[g.inputs[i]].tensor.data = static_cast<char*>(const_cast<void*>(inputs[i]));
  return m.ran = lite::run_graph(m, g);
}

const void* bl_output_data(const bl_model* model, int32_t index) {
  const lite::Graph& g = model->model.graphs[0];
  if (!model->model.ran || index < 0 || index >= g.outputs.size) return nullptr;
  return g.values[g.outputs[index]].tensor.data;
}

int64_t bl_memory(const bl_model* model) {
  const lite::Model& m = model->model;
  return m.arena_size + m.scratch_shared + m.threads * m.scratch_each + m.constants_size;
}

const char* bl_version(void) { return LITE_VERSION; }

const char* bl_instructions(const bl_model* model) {
  const lite::Kernels* kernels = model ? model->model.kernels : lite::find_kernels(nullptr);
  return kernels->name;
}
}
