// The map: all entities on a canvas, by the similarity of their embeddings, coloured by type.
const FULL = 65535,
  MOST_LABELS = 28,
  NEAREST = 8;

async function mapView(source, focused) {
  const canvas = make("canvas", {
    tabindex: "0",
    role: "application",
    "aria-label": "Map of the entities. Arrows move, plus and minus zoom, Enter opens the entity in the middle.",
    "aria-describedby": "in-the-middle",
  });
  const frame = make("div", { class: "frame" }, canvas);
  const middle = make("div", { id: "in-the-middle" });
  const buttons = make("div", { class: "zoom", role: "group", "aria-label": "Zoom" });
  frame.append(buttons);
  const legend = make(
    "ul",
    { class: "legend" },
    source.info.types.map((name, type) => make("li", {}, typeDot(type), bdi(name))),
  );
  const map = new EntityMap(source, canvas, await source.map(), middle);
  for (const [label, sign, work] of [
    ["Zoom in", "+", () => map.zoom(1.6)],
    ["Zoom out", "−", () => map.zoom(1 / 1.6)],
    ["Show all", "⤢", () => map.all()],
  ]) {
    buttons.append(make("button", { type: "button", "aria-label": label, title: label, onclick: work }, sign));
  }
  later(async () => {
    map.start();
    if (focused !== null) await map.show(focused);
  });
  leaving(() => map.stop());
  return [
    heading(
      "Map",
      make(
        "p",
        { class: "quiet" },
        `${plural(source.info.num_entities, "entity", "entities")}: what is near has similar embeddings (${source.info.layout}). Drag, zoom, and click a dot; or find an entity by name above.`,
      ),
    ),
    frame,
    legend,
    make("section", { class: "card" }, make("h2", {}, "In the middle of the map"), middle),
  ];
}

class EntityMap {
  constructor(source, canvas, { places, types, degree }, list) {
    Object.assign(this, { source, canvas, places, types, degree, list });
    this.size = [0, 0];
    this.centre = [FULL / 2, FULL / 2];
    this.scale = 1; // pixels per unit of the places
    this.order = [...degree.keys()].sort((a, b) => degree[b] - degree[a]);
    this.chosen = null;
    this.hovered = -1;
    this.pointers = new Map();
    this.names = new Map();
    this.waiting = false;
  }

  start() {
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    this.redraw = () => this.draw();
    document.addEventListener("colours", this.redraw);
    const on = (kind, work, options) => this.canvas.addEventListener(kind, work.bind(this), options);
    on("wheel", this.wheel, { passive: false });
    on("pointerdown", this.down);
    on("pointermove", this.move);
    on("pointerup", this.up);
    on("pointercancel", this.up);
    on("pointerleave", () => this.hover(-1));
    on("keydown", this.key);
    on("focus", this.draw);
    on("blur", this.draw);
    this.resize();
    this.all();
  }

  stop() {
    this.observer?.disconnect();
    document.removeEventListener("colours", this.redraw);
    byId("tip").hidden = true;
  }

  resize() {
    const box = this.canvas.getBoundingClientRect(),
      ratio = devicePixelRatio || 1;
    if (!box.width) return;
    const fresh = this.size[0] === 0;
    this.size = [box.width, box.height];
    [this.canvas.width, this.canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    this.least = (0.92 * Math.min(...this.size)) / FULL;
    if (fresh) this.scale = this.least;
    this.draw();
  }

  all() {
    this.centre = [FULL / 2, FULL / 2];
    this.scale = this.least;
    this.draw();
  }
  toScreen(id) {
    return [
      (this.places[2 * id] - this.centre[0]) * this.scale + this.size[0] / 2,
      (this.centre[1] - this.places[2 * id + 1]) * this.scale + this.size[1] / 2,
    ];
  }

  zoom(factor, [x, y] = [this.size[0] / 2, this.size[1] / 2]) {
    const [dx, dy] = [x - this.size[0] / 2, y - this.size[1] / 2];
    const scale = Math.min(Math.max(this.scale * factor, this.least / 2), this.least * 400);
    this.centre[0] += dx / this.scale - dx / scale;
    this.centre[1] -= dy / this.scale - dy / scale;
    this.scale = scale;
    this.draw();
  }

  pan(dx, dy) {
    this.centre[0] -= dx / this.scale;
    this.centre[1] += dy / this.scale;
    this.draw();
  }

  async show(id) {
    if (!(2 * id in this.places)) return;
    this.chosen = id;
    this.centre = [this.places[2 * id], this.places[2 * id + 1]];
    this.scale = Math.max(this.scale, 5 * this.least);
    this.draw();
    const [entity] = await this.source.refs([id]);
    say(`${visible(entity.name)} is in the middle of the map`);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const brush = this.canvas.getContext("2d"),
      style = getComputedStyle(this.canvas),
      ratio = devicePixelRatio || 1;
    const [width, height] = this.size;
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, width, height);
    const n = this.types.length,
      grown = Math.sqrt(this.scale / this.least);
    const dot = Math.max(1.5, Math.min(7, (n > 20000 ? 1.6 : 2.6) * Math.sqrt(grown)));
    const colours = this.source.info.types.map((_, type) => style.getPropertyValue(`--t${type}`));
    brush.globalAlpha = n > 20000 ? 0.6 : 0.75;
    let inside = 0;
    for (let type = 0; type < colours.length; type += 1) {
      brush.fillStyle = colours[type];
      brush.beginPath();
      for (let id = 0; id < n; id += 1) {
        if (this.types[id] !== type) continue;
        const x = (this.places[2 * id] - this.centre[0]) * this.scale + width / 2,
          y = (this.centre[1] - this.places[2 * id + 1]) * this.scale + height / 2;
        if (x < -dot || y < -dot || x > width + dot || y > height + dot) continue;
        inside += 1;
        if (n > 20000 && dot < 3) brush.rect(x - dot / 2, y - dot / 2, dot, dot);
        else {
          brush.moveTo(x + dot, y);
          brush.arc(x, y, dot, 0, 7);
        }
      }
      brush.fill();
    }
    brush.globalAlpha = 1;
    for (const id of [this.chosen, this.hovered])
      if (id !== null && id >= 0) this.ring(brush, id, dot + 3, style.getPropertyValue("--ink"));
    if (document.activeElement === this.canvas) this.cross(brush, style.getPropertyValue("--quiet"));
    this.label(brush, style, dot);
    this.inside = inside;
    this.schedule();
  }

  ring(brush, id, radius, colour) {
    const [x, y] = this.toScreen(id);
    brush.strokeStyle = colour;
    brush.lineWidth = 2;
    brush.beginPath();
    brush.arc(x, y, radius, 0, 7);
    brush.stroke();
  }

  cross(brush, colour) {
    const [x, y] = [this.size[0] / 2, this.size[1] / 2];
    brush.strokeStyle = colour;
    brush.lineWidth = 1;
    brush.beginPath();
    for (const [dx, dy] of [
      [1, 0],
      [-1, 0],
      [0, 1],
      [0, -1],
    ]) {
      brush.moveTo(x + 5 * dx, y + 5 * dy);
      brush.lineTo(x + 13 * dx, y + 13 * dy);
    }
    brush.stroke();
  }

  // Names of the entities with the most facts that are in sight, where they do not cover each other.
  label(brush, style, dot) {
    const wanted = [],
      taken = [],
      [width, height] = this.size,
      missing = [];
    const candidates = this.chosen === null ? this.order : [this.chosen, ...this.order];
    brush.font = `12px ${style.fontFamily}`;
    brush.textAlign = "center";
    brush.lineJoin = "round";
    let tried = 0;
    for (const id of candidates) {
      if (wanted.length >= MOST_LABELS || tried > 400) break;
      const [x, y] = this.toScreen(id);
      if (x < 0 || y < 10 || x > width || y > height) continue;
      tried += 1;
      const name = this.names.get(id);
      if (name === undefined) {
        missing.push(id);
        continue;
      }
      const half = brush.measureText(name).width / 2 + 4,
        at = Math.min(Math.max(x, half), width - half);
      const box = [at - half, y - dot - 18, at + half, y - dot];
      if (taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      wanted.push([name, at, y - dot - 4]);
    }
    brush.strokeStyle = style.getPropertyValue("--card");
    brush.lineWidth = 3;
    brush.fillStyle = style.getPropertyValue("--ink");
    for (const [name, x, y] of wanted) {
      brush.strokeText(name, x, y);
      brush.fillText(name, x, y);
    }
    if (missing.length) this.fetchNames(missing.slice(0, 200));
  }

  async fetchNames(ids) {
    if (this.fetching) return;
    this.fetching = true;
    for (const { id, name } of await this.source.refs(ids)) this.names.set(id, shortened(visible(name), 26));
    this.fetching = false;
    this.draw();
  }

  nearest(x, y, most, reach) {
    const found = [];
    for (let id = 0; id < this.types.length; id += 1) {
      const [a, b] = this.toScreen(id),
        apart = (a - x) ** 2 + (b - y) ** 2;
      if (apart > reach * reach || (found.length >= most && apart >= found[found.length - 1][1])) continue;
      found.push([id, apart]);
      found.sort((p, q) => p[1] - q[1]);
      if (found.length > most) found.pop();
    }
    return found.map(([id]) => id);
  }

  // After moving: list the entities in the middle, for those who do not use the canvas.
  schedule() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const ids = this.nearest(this.size[0] / 2, this.size[1] / 2, NEAREST, Infinity);
      const entities = await this.source.refs(ids);
      if (!this.list.isConnected) return;
      this.list.replaceChildren(
        make("p", { class: "quiet" }, `${plural(this.inside, "entity is", "entities are")} in sight.`),
        make(
          "ul",
          { class: "chips" },
          entities.map((entity) => make("li", {}, chip(entity))),
        ),
      );
    }, 150);
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), this.place(event));
  }

  down(event) {
    this.pointers.set(event.pointerId, this.place(event));
    this.moved = this.pointers.size > 1;
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const now = this.place(event),
      before = this.pointers.get(event.pointerId);
    if (!before) return this.hover(this.nearest(...now, 1, 12)[0] ?? -1, event);
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
      this.zoom(apart(now, other) / Math.max(1, apart(before, other)), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
    } else if (this.moved || Math.hypot(now[0] - before[0], now[1] - before[1]) > 4) {
      this.moved = true;
      this.pan(now[0] - before[0], now[1] - before[1]);
    } else return;
    this.pointers.set(event.pointerId, now);
  }

  up(event) {
    const at = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!at || this.moved || event.type === "pointercancel") return;
    const [id] = this.nearest(...at, 1, event.pointerType === "touch" ? 24 : 12);
    if (id !== undefined) location.hash = `#/entity/${id}`;
  }

  async hover(id, event) {
    const tip = byId("tip");
    this.canvas.style.cursor = id >= 0 ? "pointer" : "grab";
    if (event && id >= 0) {
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 240)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    }
    if (id === this.hovered) return;
    this.hovered = id;
    this.draw();
    if (id < 0) {
      tip.hidden = true;
      return;
    }
    const [entity] = await this.source.refs([id]);
    if (this.hovered !== id) return;
    tip.replaceChildren(bdi(shortened(entity.name, 80)), make("small", {}, ` ${plural(entity.degree, "fact")}`));
    tip.hidden = false;
  }

  key(event) {
    const step = 60,
      moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key in moves) this.pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.6);
    else if (event.key === "-") this.zoom(1 / 1.6);
    else if (event.key === "0") this.all();
    else if (event.key === "Enter") {
      const [id] = this.nearest(this.size[0] / 2, this.size[1] / 2, 1, Infinity);
      if (id !== undefined) location.hash = `#/entity/${id}`;
    } else return;
    event.preventDefault();
  }
}
