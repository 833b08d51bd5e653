// Runs a model away from the page: messages {id, call, given} are answered by {id, result} or {id, error}.
import { load, typeNames } from "./bireme.mjs";

let model = null;

const described = (tensors) => tensors.map((t) => ({ ...t, type: typeNames[t.type] }));

const calls = {
  async open({ source }) {
    model?.free();
    const began = performance.now();
    model = await load(source);
    return { inputs: described(model.inputs), outputs: described(model.outputs), took: performance.now() - began };
  },
  run({ inputs }) {
    if (!model) throw new Error("no model is open");
    const began = performance.now();
    const results = model.run(inputs);
    return { results, took: performance.now() - began };
  },
};

self.onmessage = async ({ data: { id, call, given } }) => {
  try {
    const result = await calls[call](given);
    self.postMessage({ id, result }, (result.results ?? []).map((r) => r.data.buffer));
  } catch (error) {
    self.postMessage({ id, error: String(error.message ?? error) });
  }
};
