"use strict";
const at = (id) => document.getElementById(id);
let newest = 0;

function say(text, isError) {
  at("state").textContent = text;
  at("state").classList.toggle("error", Boolean(isError));
}

function shape(page) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${page.width} ${page.height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  for (const line of page.lines) {
    const polygon = document.createElementNS(svg.namespaceURI, "polygon");
    polygon.setAttribute("points", line.points.map((p) => p.join(",")).join(" "));
    const title = document.createElementNS(svg.namespaceURI, "title");
    title.textContent = `${line.text} (${line.score})`;
    polygon.append(title);
    svg.append(polygon);
  }
  return svg;
}

function show(found) {
  at("pages").replaceChildren(...found.pages.map((page) => {
    const figure = document.createElement("figure");
    figure.className = "page";
    const image = new Image();
    image.src = page.picture;
    image.alt = "";
    figure.append(image, shape(page));
    return figure;
  }));
  at("markdown").textContent = found.markdown;
  at("html").innerHTML = found.pages.map((page) => page.html).join("<hr>");
}

async function read(file) {
  const mine = ++newest;
  say(`Reading ${file.name} …`);
  const start = performance.now();
  try {
    const answer = await fetch("read", { method: "POST", body: file, headers: { "X-Bireme": "read" } });
    const found = await answer.json();
    if (mine !== newest) return;
    if (!answer.ok) { say(`${file.name}: ${found.error}`, true); return; }
    show(found);
    const lines = found.pages.reduce((n, page) => n + page.lines.length, 0);
    say(`${file.name}: ${lines} lines in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  } catch (e) {
    if (mine === newest) say(`${file.name}: the server does not answer`, true);
  }
}

function turn(shown) {
  at("markdown").hidden = shown !== "markdown";
  at("html").hidden = shown !== "html";
  at("show-markdown").setAttribute("aria-pressed", String(shown === "markdown"));
  at("show-page").setAttribute("aria-pressed", String(shown === "html"));
}

at("show-markdown").addEventListener("click", () => turn("markdown"));
at("show-page").addEventListener("click", () => turn("html"));
at("copy").addEventListener("click", () => navigator.clipboard.writeText(at("markdown").textContent));
at("file").addEventListener("change", (e) => { if (e.target.files[0]) read(e.target.files[0]); });
document.addEventListener("dragover", (e) => { e.preventDefault(); document.body.classList.add("over"); });
document.addEventListener("dragleave", () => document.body.classList.remove("over"));
document.addEventListener("drop", (e) => {
  e.preventDefault();
  document.body.classList.remove("over");
  if (e.dataTransfer.files[0]) read(e.dataTransfer.files[0]);
});
