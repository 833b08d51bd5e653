// A page made from the model's signature: pictures for inputs of three channels, numbers for others.
const worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
const waiting = new Map();
let calls = 0;

worker.onmessage = ({ data: { id, result, error } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  error === undefined ? resolve(result) : reject(new Error(error));
};

function ask(call, given) {
  return new Promise((resolve, reject) => {
    waiting.set(++calls, { resolve, reject });
    worker.postMessage({ id: calls, call, given });
  });
}

const KINDS = { bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, float32: Float32Array, float64: Float64Array };
const state = document.getElementById("state"), form = document.getElementById("inputs");
const results = document.getElementById("results");

function add(parent, tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  parent.append(made);
  return made;
}

function tell(text, wrong = false) {
  state.textContent = text;
  state.className = wrong ? "error" : "";
}

const shown = (shape) => `[${shape.map((n) => (n < 0 ? "?" : n)).join(", ")}]`;

function sizeFields(box, shape, otherwise) {
  const fields = shape.map((n, axis) => {
    if (n >= 0) return null;
    const field = add(add(box, "label", {}, `axis ${axis} `), "input", { type: "number", min: 1, value: otherwise(axis) });
    return field;
  });
  return () => shape.map((n, axis) => (n >= 0 ? n : Math.max(1, Number(fields[axis].value) || 1)));
}

// Channels first or last, by where the three are.
const pictureAxes = ({ type, shape }) => {
  if (type !== "float32" || shape.length !== 4) return null;
  if (shape[1] === 3) return { height: 2, width: 3, last: false };
  return shape[3] === 3 ? { height: 1, width: 2, last: true } : null;
};

function pictureInput(box, input, axes) {
  const sizes = sizeFields(box, input.shape, (axis) => (axis === 0 ? 1 : 224));
  const number = (name, value) => add(add(box, "label", {}, `${name} `), "input", { type: "number", step: "any", value });
  const file = add(add(box, "label", {}, "picture "), "input", { type: "file", accept: "image/*" });
  const less = number("minus", 127.5), by = number("divided by", 127.5);
  const turned = add(add(box, "label", {}, "blue first "), "input", { type: "checkbox" });
  const canvas = add(box, "canvas", { width: 224, height: 224 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let picture = null;
  const draw = () => {
    const shape = sizes();
    canvas.width = shape[axes.width];
    canvas.height = shape[axes.height];
    if (picture) return context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const colours = context.createLinearGradient(0, 0, canvas.width, canvas.height);
    colours.addColorStop(0, "#2a6"); colours.addColorStop(0.5, "#fc4"); colours.addColorStop(1, "#36c");
    context.fillStyle = colours;
    return context.fillRect(0, 0, canvas.width, canvas.height);
  };
  file.onchange = async () => {
    if (!file.files.length) return;
    try {
      picture = await createImageBitmap(file.files[0]);
      draw();
    } catch {
      tell(`${file.files[0].name} is no picture that this browser reads`, true);
    }
  };
  box.addEventListener("input", draw);
  draw();
  return () => {
    const shape = sizes(), plane = canvas.width * canvas.height;
    if (shape[0] !== 1) throw new Error(`${input.name}: the page gives one picture at a time`);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const data = new Float32Array(3 * plane);
    for (let i = 0; i < plane; i++) {
      for (let c = 0; c < 3; c++) {
        const value = (pixels[4 * i + (turned.checked ? 2 - c : c)] - Number(less.value)) / Number(by.value);
        data[axes.last ? 3 * i + c : c * plane + i] = value;
      }
    }
    return { data, shape };
  };
}

function numberInput(box, input) {
  const sizes = sizeFields(box, input.shape, () => 1);
  const text = add(box, "textarea", { placeholder: "numbers, in order; the last is repeated", value: "1" });
  text.setAttribute("aria-label", input.name);
  return () => {
    const shape = sizes(), count = shape.reduce((a, b) => a * b, 1);
    const Kind = KINDS[input.type], words = text.value.split(/[\s,;[\]]+/).filter(Boolean);
    if (!words.length) throw new Error(`${input.name} needs at least one number`);
    if (words.length > count) throw new Error(`${input.name} has ${count} elements, not ${words.length}`);
    const numbers = words.map((w) => {
      if (!Number.isFinite(Number(w))) throw new Error(`${input.name}: ${w} is no number`);
      return Kind === BigInt64Array ? BigInt(Math.trunc(Number(w))) : Number(w);
    });
    return { data: Kind.from({ length: count }, (_, i) => numbers[Math.min(i, numbers.length - 1)]), shape };
  };
}

function show({ name, shape, type, data }) {
  add(results, "h2", {}, `${name} `, Object.assign(document.createElement("code"), { textContent: `${type} ${shown(shape)}` }));
  const numbers = Array.from(data.slice(0, 1 << 20), Number);
  const last = shape.at(-1) ?? 1, classes = last >= 5 && numbers.length === last && type === "float32";
  const table = add(results, "table");
  if (!classes) {
    add(add(table, "tr"), "td", {}, numbers.slice(0, 64).map((n) => +n.toPrecision(6)).join("  "), numbers.length > 64 ? " …" : "");
    return;
  }
  const most = Math.max(...numbers), least = Math.min(...numbers);
  const order = numbers.map((_, i) => i).sort((a, b) => numbers[b] - numbers[a]).slice(0, 5);
  for (const i of order) {
    const row = add(table, "tr");
    add(row, "td", {}, `class ${i}`);
    add(row, "td", {}, numbers[i].toPrecision(5));
    add(add(row, "td", { className: "bar" }), "meter", { min: 0, max: 1, value: most > least ? (numbers[i] - least) / (most - least) : 1 });
  }
}

try {
  const about = await (await fetch("model.json")).json();
  document.title = document.querySelector("h1").textContent = about.name;
  const opened = await ask("open", { source: new URL(about.file, location).href });
  const readers = opened.inputs.map((input) => {
    const box = add(form, "fieldset", {});
    add(box, "legend", {}, `${input.name} `, Object.assign(document.createElement("code"), { textContent: `${input.type} ${shown(input.shape)}` }));
    const axes = pictureAxes(input);
    return axes ? pictureInput(box, input, axes) : numberInput(box, input);
  });
  const button = add(form, "button", { type: "submit" }, "Run");
  form.hidden = false;
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const inputs = readers.map((read) => read());
      const { results: made, took } = await ask("run", { inputs });
      results.replaceChildren();
      made.forEach(show);
      tell(`Ran in ${took.toFixed(1)} ms.`);
      document.body.dataset.ran = "yes";
    } catch (error) {
      tell(error.message, true);
    }
    button.disabled = false;
  };
  tell(`Opened in ${opened.took.toFixed(0)} ms.`);
  if (location.hash === "#run") form.requestSubmit();
} catch (error) {
  tell(`The model cannot be opened: ${error.message}`, true);
}
