// node --experimental-websocket browser.mjs CHROMIUM URL PICTURE.png: opens the page, waits until it
// has run its model, prints what it requested and shows, and takes a picture.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [program, url, picture] = process.argv.slice(2);
const profile = await mkdtemp(join(tmpdir(), "browser-"));
const browser = spawn(program, ["--no-sandbox", "--disable-gpu", "--headless", "--remote-debugging-port=0",
  `--user-data-dir=${profile}`, "--window-size=900,1000", "about:blank"], { stdio: "ignore" });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function until(what, look) {
  for (let turn = 0; turn < 600; turn++) {
    const found = await look().catch(() => null);
    if (found) return found;
    await pause(200);
  }
  throw new Error(`waited too long for ${what}`);
}

try {
  const port = await until("the browser", async () => (await readFile(join(profile, "DevToolsActivePort"), "utf8")).split("\n")[0]);
  const page = await until("a page", async () => (await (await fetch(`http://127.0.0.1:${port}/json`)).json()).find((p) => p.type === "page"));
  const socket = new WebSocket(page.webSocketDebuggerUrl);
  await new Promise((done, fail) => { socket.onopen = done; socket.onerror = fail; });
  const waiting = new Map(), requests = [];
  let count = 0;
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.method === "Network.requestWillBeSent") requests.push(message.params.request.url);
    waiting.get(message.id)?.(message.result);
  };
  const call = (method, params = {}) => new Promise((done) => {
    waiting.set(++count, done);
    socket.send(JSON.stringify({ id: count, method, params }));
  });
  await call("Network.enable");
  await call("Page.navigate", { url });
  const value = async (expression) => (await call("Runtime.evaluate", { expression })).result.value;
  await until("a result", () => value("document.body?.dataset.ran || document.querySelector('.error')?.textContent"));
  await writeFile(picture, Buffer.from((await call("Page.captureScreenshot")).data, "base64"));
  console.log(JSON.stringify({ requests, text: await value("document.body.innerText") }));
} finally {
  browser.kill();
  await new Promise((done) => browser.once("exit", done));
  await rm(profile, { recursive: true, force: true, maxRetries: 5 });
}
