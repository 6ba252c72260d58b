// Building blocks: elements made of text only, names, numbers, what is said to a screen reader.
const byId = (id) => document.getElementById(id);
const NAMESPACE = "http://www.w3.org/2000/svg";

// An element with attributes and children; a string becomes text, never markup.
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(NAMESPACE, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// Control characters are shown as their pictures; direction marks stay inside <bdi>.
const visible = (name) =>
  name.replace(/[\u0000-\u001f\u007f-\u009f]/g, (sign) => {
    const code = sign.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : "\u2421";
  });
const shortened = (name, most) => (name.length > most ? `${[...name].slice(0, most - 1).join("")}…` : name);
const bdi = (name) => make("bdi", {}, visible(name));

// A link to an entity; the whole name is its text.
const entityLink = (entity, attributes = {}) =>
  make("a", { href: `#/entity/${entity.id}`, class: "entity", ...attributes }, bdi(entity.name));

const count = (number) => number.toLocaleString("en");
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

function percent(share) {
  if (share >= 0.995) return "> 99 %";
  if (share < 0.001) return "< 0.1 %";
  return share < 0.1 ? `${(100 * share).toFixed(1)} %` : `${Math.round(100 * share)} %`;
}

// How sure the model is: a probability with a bar, or the raw score where none is calibrated.
function belief(answer) {
  if (answer.probability === null || answer.probability === undefined) {
    return make("span", { class: "belief", title: "raw score, not a probability" }, answer.score.toFixed(2));
  }
  const bar = make("i", { "aria-hidden": "true" });
  bar.style.setProperty("--share", answer.probability.toFixed(3));
  return make("span", { class: "belief" }, bar, percent(answer.probability));
}

function flagList(flags) {
  if (!flags.length) return null;
  return make(
    "ul",
    { class: "flags", "aria-label": "Doubts" },
    flags.map((flag) => make("li", { class: flag.kind }, parts(flag.parts))),
  );
}

// Text with entities in it: strings as they are, {id, name} as links.
const parts = (list) => list.map((part) => (typeof part === "string" ? part : entityLink(part)));

const SPLITS = { valid: "held out", test: "held out" };
const heldOut = (split) =>
  SPLITS[split]
    ? make("span", { class: "split", title: `In the ${split} split: the model was not trained on it` }, SPLITS[split])
    : null;

let saidLast = 0;
function say(text) {
  byId("said").textContent = text;
  saidLast = performance.now();
}

// Light and dark: as the system has it, or as the button was pressed, shared with the report.
function themeButton() {
  const button = byId("theme"),
    root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show in ${isDark() ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("colours"));
  };
  const kept = stored("nscaching-theme");
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store("nscaching-theme", root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  label();
}

// Storage that may be absent: a file opened in a private window has none.
function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function store(key, value) {
  try {
    localStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}
