// The neighbourhood of an entity: itself in the middle, neighbours around it, grouped by relation.
const MOST_AROUND = 18,
  MOST_AROUND_NARROW = 10;

// Neighbours to show: relations take turns, so that a large one does not crowd out the others.
function chosenNeighbours(entity, most) {
  const taken = new Set([entity.id]);
  const groups = entity.groups.map(({ relation, out, facts }) => facts.map((fact) => ({ ...fact, relation, out })));
  const chosen = [];
  for (let turn = 0; chosen.length < most; turn += 1) {
    let any = false;
    for (const facts of groups) {
      if (turn >= facts.length) continue;
      any = true;
      if (chosen.length < most && !taken.has(facts[turn].other.id)) {
        taken.add(facts[turn].other.id);
        chosen.push(facts[turn]);
      }
    }
    if (!any) break;
  }
  return chosen.sort((a, b) => a.relation - b.relation || Number(a.out) - Number(b.out));
}

async function drawNeighbourhood(source, entity, place) {
  const width = Math.max(280, place.clientWidth || 420),
    narrow = width < 380;
  const shown = chosenNeighbours(entity, narrow ? MOST_AROUND_NARROW : MOST_AROUND);
  if (!shown.length) {
    place.replaceChildren(make("p", { class: "quiet" }, "It has no facts."));
    return;
  }
  const height = Math.max(260, Math.min(420, 150 + 17 * shown.length)),
    middle = [width / 2, height / 2];
  const reach = [Math.max(60, width / 2 - (narrow ? 92 : 118)), height / 2 - 34];
  const at = shown.map((_, place) => {
    const angle = (2 * Math.PI * (place + 0.5)) / shown.length - Math.PI / 2;
    return [middle[0] + reach[0] * Math.cos(angle), middle[1] + reach[1] * Math.sin(angle), angle];
  });
  const where = new Map(shown.map((fact, place) => [fact.other.id, at[place]]));
  const links = await source.links(shown.map((fact) => fact.other.id));
  const drawn = [];
  for (const [a, b] of links) {
    const [p, q] = [where.get(a), where.get(b)];
    drawn.push(
      makeSvg("path", {
        class: "cross",
        d: `M${p[0]} ${p[1]}Q${(p[0] + q[0] + 2 * middle[0]) / 4} ${(p[1] + q[1] + 2 * middle[1]) / 4} ${q[0]} ${q[1]}`,
      }),
    );
  }
  shown.forEach((fact, place) => {
    const [x, y] = at[place];
    drawn.push(makeSvg("line", { class: fact.out ? "edge" : "edge in", x1: middle[0], y1: middle[1], x2: x, y2: y }));
  });
  drawn.push(...relationLabels(source, shown, at, middle));
  shown.forEach((fact, place) => drawn.push(neighbourNode(fact, at[place], width, narrow)));
  drawn.push(makeSvg("circle", { class: "centre", cx: middle[0], cy: middle[1], r: 7 }));
  const label = `${visible(entity.name)} and ${plural(shown.length, "neighbour")}`;
  const left = entity.neighbours - shown.length;
  place.replaceChildren(
    makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label }, drawn),
    left > 0 ? make("p", { class: "quiet" }, `${count(left)} more are in the list of facts.`) : "",
  );
}

// A relation is named once, on an edge of its group, where the name covers no other.
function relationLabels(source, shown, at, middle) {
  const made = [],
    taken = at.map(([x, y]) => [x - 8, y - 8, x + 8, y + 8]);
  taken.push([middle[0] - 10, middle[1] - 10, middle[0] + 10, middle[1] + 10]);
  for (let start = 0; start < shown.length;) {
    let end = start;
    while (end < shown.length && shown[end].relation === shown[start].relation && shown[end].out === shown[start].out) end += 1;
    const name = shortened(relationName(source, shown[start].relation), 22),
      half = 3.1 * name.length + 10;
    const places = [0.55, 0.68, 0.42, 0.78].flatMap((share) =>
      at.slice(start, end).map(([x, y]) => [middle[0] + share * (x - middle[0]), middle[1] + share * (y - middle[1])]),
    );
    const box = ([x, y]) => [x - half, y - 8, x + half, y + 8];
    const free = places.find(
      (place) =>
        !taken.some((other) => {
          const own = box(place);
          return own[0] < other[2] && other[0] < own[2] && own[1] < other[3] && other[1] < own[3];
        }),
    );
    if (free) {
      taken.push(box(free));
      made.push(
        makeSvg(
          "text",
          { class: "relation", x: free[0], y: free[1] + 3, "text-anchor": "middle" },
          shown[start].out ? `${name} →` : `← ${name}`,
        ),
      );
    }
    start = end;
  }
  return made;
}

function neighbourNode(fact, [x, y, angle], width, narrow) {
  const right = Math.cos(angle) > 0.15,
    left = Math.cos(angle) < -0.15;
  const label = makeSvg(
    "text",
    {
      x: x + (right ? 10 : left ? -10 : 0),
      y: y + (right || left ? 4 : Math.sin(angle) > 0 ? 20 : -12),
      "text-anchor": right ? "start" : left ? "end" : "middle",
    },
    shortened(visible(fact.other.name), narrow ? 13 : 17),
  );
  return makeSvg(
    "a",
    { href: `#/entity/${fact.other.id}`, "aria-label": visible(fact.other.name) },
    makeSvg("circle", { class: `node t${fact.other.type}`, cx: x, cy: y, r: 5.5 }),
    label,
    makeSvg("title", {}, visible(fact.other.name)),
  );
}
