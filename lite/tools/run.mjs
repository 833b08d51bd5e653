// lite_run for Node.js: node run.mjs WASM MODEL OUTPUT 1x3x224x224:image.bin ...
import { readFile, writeFile } from "node:fs/promises";
import { load } from "../web/bireme.mjs";

const KINDS = { bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, float32: Float32Array, float64: Float64Array };
const NAMES = Object.keys(KINDS);

const [wasm, path, output, ...given] = process.argv.slice(2);
const model = await load(await readFile(path), { wasm: await readFile(wasm) });
const inputs = [];
for (const [i, text] of given.entries()) {
  const [sizes, file] = text.split(":");
  const bytes = await readFile(file);
  const Kind = KINDS[NAMES[model.inputs[i].type]];
  const own = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  inputs.push({ data: new Kind(own), shape: sizes ? sizes.split("x").map(Number) : [] });
}
const results = model.run(inputs);
await writeFile(output, Buffer.concat(results.map(({ data: d }) => Buffer.from(d.buffer, d.byteOffset, d.byteLength))));
model.free();
