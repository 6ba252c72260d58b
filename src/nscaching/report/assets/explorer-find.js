// Finding entities by typing: one folded text of all names, scanned by indexOf.
const MARKS = /[\u0300-\u036f]/g;
const fold = (name) => name.normalize("NFD").replace(MARKS, "").toLowerCase();
const MOST_FOUND = 20;

class NameIndex {
  constructor(names, degree) {
    const folded = names.map(fold);
    this.degree = degree;
    this.text = `\n${folded.join("\n")}\n`;
    this.start = new Uint32Array(names.length + 1);
    let at = 1;
    folded.forEach((name, index) => {
      this.start[index] = at;
      at += name.length + 1;
    });
    this.start[names.length] = at;
  }

  // Ids: the exact name, then names that begin so, words that do, and any part; frequent ones first.
  find(wanted, most = MOST_FOUND) {
    const query = fold(wanted.trim());
    if (!query) return { ids: [], total: 0 };
    const { text, start, degree } = this;
    const ids = [],
      keys = [];
    let total = 0,
      entity = 0;
    for (let at = text.indexOf(query, 1); at >= 0; at = text.indexOf(query, start[entity + 1])) {
      entity = this.entityAt(at, entity);
      const end = start[entity + 1] - 1;
      let rank = 3;
      for (; at >= 0 && at < end; at = rank > 1 ? text.indexOf(query, at + 1) : -1) {
        if (at === start[entity]) rank = at + query.length === end ? 0 : 1;
        else if (rank > 2 && isBreak(text.charCodeAt(at - 1))) rank = 2;
        if (rank <= 2) break;
      }
      total += 1;
      const key = rank * 2 ** 32 - degree[entity];
      if (ids.length < most || key < keys[keys.length - 1]) {
        let place = keys.length;
        while (place > 0 && keys[place - 1] > key) place -= 1;
        keys.splice(place, 0, key);
        ids.splice(place, 0, entity);
        if (ids.length > most) {
          ids.pop();
          keys.pop();
        }
      }
      if (entity + 1 >= start.length - 1) break;
    }
    return { ids, total };
  }

  // The entity whose name holds a place of the text; it is not before `from`.
  entityAt(at, from) {
    let low = from,
      step = 1;
    while (low + step < this.start.length && this.start[low + step] <= at) {
      low += step;
      step *= 2;
    }
    let high = Math.min(low + step, this.start.length - 1);
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.start[middle] <= at) low = middle;
      else high = middle;
    }
    return low;
  }
}

// Whether a letter or digit may begin a word after this sign.
const isBreak = (code) => code < 48 || (code > 57 && code < 65) || (code > 90 && code < 97) || (code > 122 && code < 128);

// The box at the top: a combobox with a list below it.
function finderBox(source, choose) {
  const input = byId("find"),
    list = byId("found");
  let shown = [],
    chosen = -1,
    asked = 0;
  const close = () => {
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const mark = (index) => {
    chosen = index;
    [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === index)));
    const item = list.children[index];
    if (!item) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({ block: "nearest" });
  };
  const take = (entity) => {
    input.value = "";
    close();
    input.blur();
    choose(entity);
  };
  const draw = ({ entities, total }) => {
    shown = entities;
    list.replaceChildren(
      ...entities.map((entity, place) =>
        make(
          "li",
          { id: `found-${place}`, role: "option", "aria-selected": "false" },
          make("i", { class: `dot t${entity.type}`, "aria-hidden": "true" }),
          bdi(shortened(entity.name, 120)),
          make("small", {}, plural(entity.degree, "fact")),
        ),
      ),
    );
    if (!entities.length) list.replaceChildren(make("li", { class: "none" }, "No entity has this in its name"));
    list.hidden = false;
    list.scrollTop = 0;
    input.setAttribute("aria-expanded", "true");
    mark(-1);
    say(total ? `${plural(total, "entity", "entities")} found` : "No entity found");
  };
  input.addEventListener("input", async () => {
    const turn = ++asked;
    if (!input.value.trim()) return close();
    const found = await source.find(input.value);
    if (turn === asked) draw(found);
  });
  input.addEventListener("keydown", (event) => {
    const open = !list.hidden && shown.length > 0;
    if (event.key === "ArrowDown" && open) mark((chosen + 1) % shown.length);
    else if (event.key === "ArrowUp" && open) mark(chosen <= 0 ? shown.length - 1 : chosen - 1);
    else if (event.key === "Enter" && open) take(shown[Math.max(0, chosen)]);
    else if (event.key === "Escape") {
      input.value = "";
      close();
    } else return;
    event.preventDefault();
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // the box keeps the focus until the choice is made
  });
  list.addEventListener("click", (event) => {
    const place = [...list.children].indexOf(event.target.closest("li"));
    if (shown[place]) take(shown[place]);
  });
  input.addEventListener("blur", close);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || isTyping(event)) return;
    event.preventDefault();
    input.focus();
  });
}

const isTyping = (event) => event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea");
