// Bireme Lite in a page, a worker or Node.js.
//
//   import { load } from "./bireme.mjs";
//   const model = await load("model.blm");            // a URL, or the bytes of a file
//   const [{ data, shape }] = model.run([{ data: image, shape: [1, 3, 224, 224] }]);
//
// The runtime is bireme.wasm beside this file; `load(source, { wasm })` takes its bytes, or its URL.

const TYPES = [
  ["bool", Uint8Array], ["uint8", Uint8Array], ["int8", Int8Array], ["int32", Int32Array],
  ["uint32", Uint32Array], ["int64", BigInt64Array], ["float32", Float32Array],
  ["float64", Float64Array],
];
const TENSOR = 80; // bytes of a bl_tensor: name, type, rank, four bytes between, eight sizes
const TEXT = 400;

let compiled = null;

async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  const answer = await fetch(source);
  if (!answer.ok) throw new Error(`${source}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

export async function load(source, { wasm = new URL("bireme.wasm", import.meta.url), memoryLimit = 0 } = {}) {
  const reading = bytesOf(source);
  compiled ??= bytesOf(wasm).then((code) => WebAssembly.compile(code));
  let instance;
  try {
    const nothing = () => 0;
    const imports = {
      wasi_snapshot_preview1: { fd_write: nothing, fd_close: nothing, fd_seek: nothing, fd_read: nothing,
        proc_exit: () => { throw new Error("the runtime has ended"); } },
      env: { emscripten_notify_memory_growth: nothing },
    };
    instance = await WebAssembly.instantiate(await compiled, imports);
  } catch (error) {
    compiled = null;
    throw error;
  }
  instance.exports._initialize?.();
  return new Model(instance.exports, await reading, memoryLimit);
}

export class Model {
  #wasm; #model; #file; #shapes = null; #room = new Map(); #types;

  constructor(wasm, bytes, memoryLimit) {
    this.#wasm = wasm;
    const held = this.#take(bytes.length + 64);
    this.#file = held;
    const start = Math.ceil(held / 64) * 64; // there constants are used where they lie
    new Uint8Array(wasm.memory.buffer).set(bytes, start);
    const error = this.#take(TEXT), options = this.#take(32);
    const view = this.#view();
    for (let i = 0; i < 32; i += 4) view.setUint32(options + i, 0, true);
    view.setBigInt64(options + 8, BigInt(memoryLimit), true);
    this.#model = wasm.bl_open_memory(start, bytes.length, options, error, TEXT);
    const why = this.#model ? "" : this.#text(error);
    wasm.free(error);
    wasm.free(options);
    if (why) {
      wasm.free(held);
      throw new Error(why);
    }
    this.#types = this.inputs.map((t) => t.type);
  }

  /** {name, type, shape} of each input; -1 is a size that `run` is given. */
  get inputs() { return this.#described("input"); }
  get outputs() { return this.#described("output"); }

  /** Results as {name, type, shape, data}, of inputs as {data, shape}. */
  run(inputs) {
    const wasm = this.#wasm;
    if (inputs.length !== this.#types.length) {
      throw new Error(`the model takes ${this.#types.length} inputs, not ${inputs.length}`);
    }
    inputs.forEach(({ data, shape }, i) => {
      const [name, Kind] = TYPES[this.#types[i]];
      const count = shape.reduce((a, b) => a * b, 1);
      if (!(data instanceof Kind) || data.length !== count) {
        throw new Error(`input ${i} must be a ${Kind.name} (${name}) of ${count} elements`);
      }
    });
    const shapes = JSON.stringify(inputs.map((x) => x.shape));
    if (shapes !== this.#shapes) this.#resize(inputs, shapes);
    const table = this.#room.get("table").at;
    inputs.forEach(({ data }, i) => {
      const at = this.#place(`input ${i}`, data.byteLength);
      new Uint8Array(wasm.memory.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
      this.#view().setUint32(table + 4 * i, at, true);
    });
    if (!wasm.bl_run(this.#model, table)) throw new Error(this.#text(wasm.bl_error(this.#model)));
    return this.outputs.map((t, i) => {
      const Kind = TYPES[t.type][1], count = t.shape.reduce((a, b) => a * b, 1);
      const at = wasm.bl_output_data(this.#model, i);
      const data = count ? new Kind(wasm.memory.buffer, at, count).slice() : new Kind(0);
      return { name: t.name, type: TYPES[t.type][0], shape: t.shape, data };
    });
  }

  free() {
    if (!this.#model) return;
    this.#wasm.bl_close(this.#model);
    for (const { at } of this.#room.values()) this.#wasm.free(at);
    this.#wasm.free(this.#file);
    this.#model = 0;
  }

  #resize(inputs, shapes) {
    const wasm = this.#wasm;
    this.#shapes = null;
    this.inputs.forEach((t, i) => {
      if (t.shape.length !== inputs[i].shape.length) {
        throw new Error(`${t.name} has ${t.shape.length} axes, not ${inputs[i].shape.length}`);
      }
    });
    const table = this.#place("table", 4 * inputs.length + 4);
    const sizes = this.#place("sizes", 64 * inputs.length + 8);
    inputs.forEach(({ shape }, i) => {
      const view = this.#view();
      view.setUint32(table + 4 * i, sizes + 64 * i, true);
      shape.forEach((n, axis) => view.setBigInt64(sizes + 64 * i + 8 * axis, BigInt(n), true));
    });
    if (!wasm.bl_resize(this.#model, table)) throw new Error(this.#text(wasm.bl_error(this.#model)));
    this.#shapes = shapes;
  }

  #described(side) {
    const wasm = this.#wasm, made = [];
    const at = this.#place("tensor", TENSOR);
    for (let i = 0; i < wasm[`bl_${side}_count`](this.#model); i++) {
      wasm[`bl_${side}`](this.#model, i, at);
      const view = this.#view(), rank = view.getInt32(at + 8, true);
      const shape = Array.from({ length: rank }, (_, a) => Number(view.getBigInt64(at + 16 + 8 * a, true)));
      made.push({ name: this.#text(view.getUint32(at, true)), type: view.getInt32(at + 4, true), shape });
    }
    return made;
  }

  // Memory that is kept under a name and grows.
  #place(name, bytes) {
    const had = this.#room.get(name);
    if (had && had.bytes >= bytes) return had.at;
    if (had) this.#wasm.free(had.at);
    this.#room.delete(name);
    const at = this.#take(bytes);
    this.#room.set(name, { at, bytes });
    return at;
  }

  #take(bytes) {
    const at = this.#wasm.malloc(Math.max(bytes, 8));
    if (!at) throw new Error(`there is no memory for ${bytes} bytes`);
    return at;
  }

  #view() { return new DataView(this.#wasm.memory.buffer); }

  #text(at) {
    const memory = new Uint8Array(this.#wasm.memory.buffer);
    return new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
  }
}

export const typeNames = TYPES.map(([name]) => name);
