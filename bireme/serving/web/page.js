"use strict";
const main = document.getElementById("models");
const token = document.getElementById("token");
const INTEGERS = /^U?INT(8|16|32|64)$/;

function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  if (options.body) headers["Content-Type"] ??= "application/json";
  return fetch(path, { ...options, headers });
}

async function answered(response) {
  if (response.ok) return response;
  let text = response.statusText;
  try {
    const { error } = await response.json();
    text = error.message ?? error;
  } catch { /* the body was no JSON: the status must do */ }
  throw new Error(`${response.status}: ${text}`);
}

const json = async (path, options) => (await answered(await ask(path, options))).json();

function shown(id, title) {
  const section = document.getElementById(id).content.cloneNode(true).firstElementChild;
  section.querySelector("h2").textContent = title;
  main.append(section);
  return section;
}

function chat(name) {
  const section = shown("chat", name), turns = [];
  const list = section.querySelector(".turns"), form = section.querySelector("form");
  const box = form.querySelector("textarea"), stop = form.querySelector(".stop");
  const send = form.querySelector("button");
  let running = null;

  function turn(role, text) {
    const element = document.createElement("div");
    element.className = `turn ${role}`;
    element.textContent = text;
    list.append(element);
    list.scrollTop = list.scrollHeight;
    return element;
  }

  async function reply() {
    const element = turn("assistant", "…");
    running = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    let text = "";
    try {
      const body = JSON.stringify({ model: name, messages: turns, stream: true });
      const response = await answered(
        await ask("v1/chat/completions", { method: "POST", body, signal: running.signal }));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
          const event = JSON.parse(line.slice(6));
          if (event.error) throw new Error(event.error.message);
          text += event.choices[0]?.delta?.content ?? "";
          element.textContent = text || "…";
          list.scrollTop = list.scrollHeight;
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") turn("error", error.message);
    }
    element.textContent = text;
    turns.push({ role: "assistant", content: text });
    running = null;
    send.disabled = false;
    stop.hidden = true;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) return;
    turns.push({ role: "user", content: box.value });
    turn("user", box.value);
    box.value = "";
    reply();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  stop.addEventListener("click", () => running?.abort());
  form.querySelector(".clear").addEventListener("click", () => {
    running?.abort();
    turns.length = 0;
    list.replaceChildren();
  });
}

function field(input) {
  const label = document.createElement("label");
  const sizes = input.shape.map((s) => (s < 0 ? "?" : s)).join(" × ");
  label.textContent = `${input.name}: ${input.datatype} [${sizes}]`;
  const box = document.createElement("textarea");
  box.rows = 2;
  const file = document.createElement("input");
  if (input.datatype === "BYTES") {
    box.placeholder = "a text per line";
    file.type = "file";
    label.append(box, file);
  } else {
    const count = input.shape.reduce((n, s) => n * (s < 0 ? 1 : s), 1);
    box.value = JSON.stringify(Array(Math.min(count, 4096)).fill(input.datatype === "BOOL" ? false : 0));
    label.append(box);
  }
  return { label, box, file, input };
}

function sized(input, count) {
  const known = input.shape.reduce((n, s) => n * (s < 0 ? 1 : s), 1);
  let left = known ? count / known : 0;
  return input.shape.map((s) => {
    if (s >= 0) return s;
    const size = left;
    left = 1;
    return size;
  });
}

async function request(fields) {
  const inputs = [], parts = [];
  for (const { box, file, input } of fields) {
    const tensor = { name: input.name, datatype: input.datatype };
    if (file.files?.length) {
      const bytes = new Uint8Array(await file.files[0].arrayBuffer());
      parts.push(new Uint32Array([bytes.length]), bytes);
      tensor.shape = sized(input, 1);
      tensor.parameters = { binary_data_size: bytes.length + 4 };
    } else {
      const data = input.datatype === "BYTES" ? box.value.split("\n") : JSON.parse(box.value).flat(Infinity);
      if (INTEGERS.test(input.datatype) && !data.every(Number.isInteger)) throw new Error(`${input.name} takes integers`);
      tensor.data = data;
      tensor.shape = sized(input, data.length);
    }
    inputs.push(tensor);
  }
  const header = new TextEncoder().encode(JSON.stringify({ inputs }));
  const headers = { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": `${header.length}` };
  return { method: "POST", body: new Blob([header, ...parts]), headers };
}

function model(about) {
  const section = shown("form", about.name), form = section.querySelector("form");
  const gives = about.outputs.map((o) => `${o.name}: ${o.datatype} [${o.shape.map((s) => (s < 0 ? "?" : s)).join(" × ")}]`);
  section.querySelector(".about").textContent = `${about.platform}, version ${about.versions.join(", ")}; gives ${gives.join("; ")}`;
  const fields = about.inputs.map(field), result = section.querySelector(".result");
  form.querySelector(".inputs").append(...fields.map((f) => f.label));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    result.hidden = false;
    result.classList.remove("error");
    result.textContent = "…";
    try {
      const start = performance.now();
      const found = await json(`v2/models/${encodeURIComponent(about.name)}/infer`, await request(fields));
      const took = (performance.now() - start).toFixed(1);
      const lines = found.outputs.map((o) => {
        const text = o.datatype === "BYTES" ? o.data.join("\n") : JSON.stringify(o.data);
        return `${o.name} [${o.shape.join(" × ")}]\n${text}`;
      });
      result.textContent = `${lines.join("\n\n")}\n\n${took} ms`;
    } catch (error) {
      result.classList.add("error");
      result.textContent = error.message;
    }
  });
}

async function start() {
  main.replaceChildren();
  try {
    const rows = await json("v2/repository/index", { method: "POST", body: "{}" });
    const language = await ask("v1/models");
    const chats = language.ok ? (await language.json()).data.filter((m) => m.chat).map((m) => m.id) : [];
    chats.forEach(chat);
    for (const name of new Set(rows.filter((r) => r.state === "READY").map((r) => r.name))) {
      if (!chats.includes(name)) model(await json(`v2/models/${encodeURIComponent(name)}`));
    }
    for (const row of rows.filter((r) => r.state !== "READY")) {
      shown("form", row.name).replaceChildren(`${row.name}: ${row.state} ${row.reason}`);
    }
  } catch (error) {
    document.getElementById("who").hidden = false;
    const line = document.createElement("p");
    line.className = "error";
    line.textContent = error.message;
    main.replaceChildren(line);
  }
}

token.addEventListener("change", start);
start();
