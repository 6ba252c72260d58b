// The address after # says what is shown; moving on puts the focus on the new heading.
const data = JSON.parse(byId("data").textContent);
const source = data.embedded ? new EmbeddedSource(data) : new ServedSource(data);
let cleanUp = [];
const leaving = (work) => {
  cleanUp.push(work);
};

const ROUTES = [
  [/^\/entity\/(\d+)$/, "start", (id) => entityView(source, Number(id))],
  [/^\/ask\/(tail|head)\/(\d+)\/(\d+)$/, "start", (side, id, relation) => askView(source, side, Number(id), Number(relation))],
  [/^\/map(?:\/(\d+))?$/, "map", (id) => mapView(source, id === undefined ? null : Number(id))],
  [/^\/review$/, "review", () => reviewView(source)],
  [/^\/help$/, "help", () => helpView(source)],
  [/^/, "start", () => startView(source)],
];

let turn = 0;
async function route(first) {
  const mine = ++turn,
    path = location.hash.slice(1);
  const [pattern, name, view] = ROUTES.find(([each]) => each.test(path));
  for (const work of cleanUp.splice(0)) work();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  let content;
  try {
    content = await view(...pattern.exec(path).slice(1));
  } catch (error) {
    content = [heading("That did not work"), make("p", {}, String(error.message ?? error))];
  }
  if (mine !== turn) return;
  const main = byId("view");
  main.replaceChildren(...content);
  const title = main.querySelector("h1");
  document.title = `${title.textContent} · ${visible(data.graph)}`;
  if (first === true) return;
  scrollTo({ top: 0, behavior: "instant" });
  title.focus({ preventScroll: true });
  document.dispatchEvent(new Event("shown"));
}

source.review = new Review(source);
themeButton();
finderBox(source, (entity) => {
  location.hash = location.hash.startsWith("#/map") ? `#/map/${entity.id}` : `#/entity/${entity.id}`;
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("view").focus();
});
if (data.report) byId("about").append(" · ", make("a", { href: data.report }, "report of this run"));
byId("about").append(data.embedded ? " · this file needs no network" : " · served from this computer only");
addEventListener("hashchange", route);
route(true);
later(() => {
  source.prepare?.();
  return source.review.load();
});
window.explorer = { source }; // for the console and the tests
