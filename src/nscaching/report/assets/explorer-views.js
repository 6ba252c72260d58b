// The views: start, an entity, a question. Each returns the content of <main>.
const relationName = (source, relation) => visible(source.info.relations[relation] ?? "?");
const MOST_OF_RELATION = 12;

function heading(text, ...rest) {
  return make("div", { class: "heading" }, make("h1", { tabindex: "-1" }, text), rest);
}

async function startView(source) {
  const { info } = source;
  const { facts } = await source.queue().catch(() => ({ facts: [] }));
  const largest = await source.refs(info.largest);
  const size = `${plural(info.num_entities, "entity", "entities")}, ${plural(info.relations.length, "relation")}, ${plural(info.num_facts, "fact")}`;
  return [
    heading(bdi(info.title)),
    make(
      "p",
      { class: "lead" },
      `${size}. Type a name to find an entity, see what the graph says of it, and ask the model what is missing.`,
    ),
    make(
      "section",
      { class: "card" },
      make("h2", {}, "Entities with the most facts"),
      make(
        "ul",
        { class: "chips" },
        largest.map((entity) => make("li", {}, chip(entity))),
      ),
    ),
    make(
      "section",
      { class: "card" },
      make("h2", {}, "Most probable new facts"),
      facts.length
        ? [
            factTable(source, facts.slice(0, 6), "The most probable facts that the graph lacks"),
            make("p", {}, make("a", { href: "#/review", class: "button" }, `Review ${plural(facts.length, "fact")}`)),
          ]
        : make("p", { class: "quiet" }, "None are listed yet; open Review."),
    ),
    make(
      "section",
      { class: "card" },
      make("h2", {}, "Map"),
      make("p", { class: "quiet" }, "All entities by the similarity of their embeddings; zoom in and choose one."),
      make("p", {}, make("a", { href: "#/map", class: "button" }, "Open the map")),
    ),
  ];
}

const chip = (entity) => entityLink(entity, { class: `entity chip t${entity.type}` });

async function entityView(source, id) {
  const entity = await source.entity(id);
  if (!entity) return [heading("No such entity")];
  const fresh = make("div", { "aria-busy": "true" }, make("p", { class: "quiet" }, "Looking for new facts …"));
  const drawing = make("div", { class: "drawing" });
  const view = [
    heading(
      bdi(entity.name),
      make(
        "p",
        { class: "quiet" },
        typeDot(entity.type),
        bdi(source.info.types[entity.type]),
        ` · ${plural(entity.degree, "fact")} · `,
        make("a", { href: `#/map/${entity.id}` }, "on the map"),
      ),
    ),
    askForm(source, entity),
    make(
      "div",
      { class: "columns" },
      make("section", { class: "card" }, make("h2", {}, "Facts"), factGroups(source, entity)),
      make(
        "div",
        { class: "stack" },
        make("section", { class: "card" }, make("h2", {}, "Neighbourhood"), drawing),
        make("section", { class: "card" }, make("h2", {}, "New facts"), fresh),
        make("section", { class: "card" }, make("h2", {}, "Similar entities"), similarList(entity)),
      ),
    ),
  ];
  later(async () => {
    await drawNeighbourhood(source, entity, drawing);
    const facts = await source.fresh(id);
    fresh.removeAttribute("aria-busy");
    fresh.replaceChildren(
      facts.length
        ? factTable(source, facts, `New facts of ${visible(entity.name)}`, { about: id })
        : make("p", { class: "quiet" }, "The model has none that is probable; ask to see what comes closest."),
    );
  });
  return view;
}

const typeDot = (type) => make("i", { class: `dot t${type}`, "aria-hidden": "true" });

// After the view stands: work that may take a moment; a problem is said, not swallowed.
function later(work) {
  setTimeout(
    () =>
      Promise.resolve()
        .then(work)
        .catch((error) => {
          say(String(error.message ?? error));
        }),
    0,
  );
}

// Entities as chips, the first ones; a button gets more of them in turn, for a hub has very many.
function chipList({ total, facts }, load) {
  const list = make("ul", { class: "chips" }),
    held = [...facts];
  let shown = 0;
  const show = (most) => {
    const next = held.slice(shown, most).map(({ other, split }) => make("li", {}, chip(other), heldOut(split)));
    list.append(...next);
    shown += next.length;
    more.textContent = `Show more (${count(total - shown)} left)`;
    if (shown === total || !next.length) more.remove();
    return next[0];
  };
  const more = make("button", {
    type: "button",
    class: "plain",
    onclick: async () => {
      more.disabled = true;
      try {
        if (held.length < total) held.push(...(await load(held.length)));
        show(held.length)?.querySelector("a").focus();
      } catch (error) {
        say(String(error.message ?? error));
      }
      more.disabled = false;
    },
  });
  show(MOST_OF_RELATION);
  return shown < total ? [list, more] : [list];
}

function factGroups(source, entity) {
  if (!entity.groups.length) return make("p", { class: "quiet" }, "The graph has none.");
  return entity.groups.map((group) => {
    const { relation, out } = group,
      side = out ? "tail" : "head";
    const ask = make(
      "a",
      {
        class: "ask",
        href: `#/ask/${side}/${entity.id}/${relation}`,
        "aria-label": `Ask for more: ${question(source, side, entity, relation)}`,
      },
      "ask",
    );
    const said = out
      ? [bdi(relationName(source, relation)), make("span", { "aria-hidden": "true" }, " →")]
      : [make("span", { "aria-hidden": "true" }, "← "), bdi(relationName(source, relation))];
    return make(
      "div",
      { class: "group" },
      make("h3", {}, said, out ? null : make("span", { class: "spoken" }, " of"), ask),
      chipList(group, (start) => source.moreFacts(entity.id, relation, out, start)),
    );
  });
}

const similarList = (entity) =>
  make(
    "ol",
    { class: "similar" },
    entity.similar.map((other) =>
      make(
        "li",
        {},
        entityLink(other),
        make("span", { class: "number", title: "cosine of the embeddings" }, other.similarity.toFixed(2)),
      ),
    ),
  );

const question = (source, side, entity, relation) => {
  const [name, said] = [visible(entity.name), relationName(source, relation)];
  return side === "tail" ? `${name} · ${said} · ?` : `? · ${said} · ${name}`;
};

// One question to choose: those that the entity has facts for first.
function askForm(source, entity, chosen = null) {
  const had = new Set(entity.groups.map(({ relation, out }) => `${out ? "tail" : "head"} ${relation}`));
  const all = source.info.relations.flatMap((_, relation) => ["tail", "head"].map((side) => `${side} ${relation}`));
  const option = (value) => {
    const [side, relation] = value.split(" ");
    return make("option", { value, selected: value === chosen }, shortened(question(source, side, entity, Number(relation)), 90));
  };
  const select = make(
    "select",
    { id: "question" },
    make("optgroup", { label: "Seen with this entity" }, all.filter((value) => had.has(value)).map(option)),
    make("optgroup", { label: "Others" }, all.filter((value) => !had.has(value)).map(option)),
  );
  return make(
    "form",
    {
      class: "asking",
      onsubmit: (event) => {
        event.preventDefault();
        const [side, relation] = select.value.split(" ");
        location.hash = `#/ask/${side}/${entity.id}/${relation}`;
      },
    },
    make("label", { for: "question" }, "Ask"),
    select,
    make("button", { type: "submit", class: "strong" }, "Answer"),
  );
}

async function askView(source, side, id, relation) {
  const entity = await source.entity(id);
  if (!entity || !(relation in source.info.relations)) return [heading("No such question")];
  const { known, answers } = await source.ask(side, id, relation);
  const hole = make("span", { class: "hole", "aria-label": "what" }, "?");
  const [head, tail] = side === "tail" ? [entityLink(entity), hole] : [hole, entityLink(entity)];
  const other = side === "tail" ? "tail" : "head";
  const calibrated = answers.some((answer) => answer.probability !== null);
  return [
    heading(
      make("span", { class: "fact" }, head, make("span", { class: "relation" }, bdi(relationName(source, relation))), tail),
    ),
    askForm(source, entity, `${side} ${relation}`),
    known.total
      ? make(
          "section",
          { class: "card" },
          make("h2", {}, "In the graph already"),
          chipList(known, (start) => source.moreKnown(side, id, relation, start)),
        )
      : null,
    make(
      "section",
      { class: "card" },
      make("h2", {}, "New answers"),
      calibrated
        ? null
        : make(
            "p",
            { class: "quiet" },
            "Raw scores of the model: no probability is known for this question, so compare them only with each other.",
          ),
      calibrated && answers[0].probability < 0.02 ? make("p", { class: "quiet" }, "None of these is probable.") : null,
      answers.length
        ? factTable(source, answers, "New answers of the model", { about: id, other })
        : make("p", { class: "quiet" }, "There is none left to give."),
    ),
  ].filter(Boolean);
}

// Facts in rows: the fact or only its answer, how sure, doubts, and why on request.
function factTable(source, facts, caption, { about = null, other = null } = {}) {
  const calibrated = facts.some((fact) => fact.probability !== null);
  const rows = facts.map((fact) => factRow(source, fact, about, other));
  return make(
    "table",
    { class: "facts" },
    make("caption", { class: "spoken" }, caption),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        make("th", { scope: "col" }, other ? "Answer" : "Fact"),
        make("th", { scope: "col" }, calibrated ? "Probability" : "Score"),
        make("th", { scope: "col" }, make("span", { class: "spoken" }, "Review and reasons")),
      ),
    ),
    rows.map((row) => make("tbody", {}, row)),
  );
}

function factRow(source, fact, about, other) {
  const why = make("tr", { class: "why", hidden: true }, make("td", { colspan: 3 }));
  const button = make(
    "button",
    {
      type: "button",
      class: "plain",
      "aria-expanded": "false",
      onclick: async () => {
        const open = why.hidden;
        why.hidden = !open;
        button.setAttribute("aria-expanded", String(open));
        if (open && !why.firstChild.firstChild) {
          why.firstChild.replaceChildren(make("p", { class: "quiet" }, "…"));
          const reasons = await source.explain(fact.head.id, fact.relation, fact.tail.id);
          why.firstChild.replaceChildren(reasonList(reasons));
          say(plural(reasons.length, "reason"));
        }
      },
    },
    "Why?",
  );
  const name = other ? entityLink(fact[other]) : triple(source, fact, about);
  return [
    make(
      "tr",
      {},
      make("td", {}, name, flagList(fact.flags)),
      make("td", { class: "number" }, belief(fact)),
      make("td", { class: "buttons" }, verdictButtons(source, fact), button),
    ),
    why,
  ];
}

function triple(source, fact, about = null) {
  const end = (entity) => (entity.id === about ? make("span", { class: "own" }, bdi(entity.name)) : entityLink(entity));
  return make(
    "span",
    { class: "fact" },
    end(fact.head),
    make("span", { class: "relation" }, bdi(relationName(source, fact.relation))),
    end(fact.tail),
  );
}

function reasonList(reasons) {
  if (!reasons.length)
    return make(
      "p",
      { class: "quiet" },
      "No path of one or two facts and no similar entity speaks for it; only the embeddings do.",
    );
  return make(
    "ul",
    { class: "reasons" },
    reasons.map(({ sign, parts: list }) =>
      make(
        "li",
        { class: sign > 0 ? "for" : "against" },
        make("span", { class: "spoken" }, sign > 0 ? "For: " : "Against: "),
        parts(list),
      ),
    ),
  );
}
