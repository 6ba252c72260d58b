// Why a fact may hold, worked out from the facts inside this file: paths, similar entities, and facts
// that others share with its head or its tail.
const MOST_PATHS = 3,
  MOST_WALKED = 3e6;
// When a shared fact tells much, as in explain.py.
const LEAST_OTHERS = 5,
  MORE = 1.5,
  LEAST_EXPECTED = 3,
  FEWER = 3;
const rounded = new Intl.NumberFormat("en", { maximumFractionDigits: 0, roundingMode: "halfEven" });

function reasonsOf(source, head, relation, tail) {
  const reasons = pathReasons(source, head, relation, tail).concat(
    similarReasons(source, head, relation, tail, "head"),
    similarReasons(source, head, relation, tail, "tail"),
    [sharedReasons(source, head, relation, "head"), sharedReasons(source, tail, relation, "tail")]
      .flat()
      .sort((a, b) => b.sign - a.sign),
  );
  const against = source.contradicted(head, relation, tail);
  const said = visible(source.info.relations[relation]);
  if (against)
    reasons.push({
      sign: -1,
      parts: [
        "The graph has ",
        source.ref(against[0]),
        ` · ${said} · `,
        source.ref(against[1]),
        "; this relation has one answer as a rule.",
      ],
    });
  const { single } = source.info; // an entity that stands there once as a rule is no surprise
  if (!single.head.includes(relation) && !source.seen("tail", relation)[tail])
    reasons.push({ sign: -1, parts: [source.ref(tail), ` is never the tail of “${said}” in the training facts.`] });
  if (!single.tail.includes(relation) && !source.seen("head", relation)[head])
    reasons.push({ sign: -1, parts: [source.ref(head), ` is never the head of “${said}” in the training facts.`] });
  return reasons;
}

// Paths of one and two facts from head to tail, each kind with how often it goes with the relation.
function pathReasons(source, head, relation, tail) {
  const kinds = new Map();
  const add = (steps, via) => {
    const key = steps.map(({ relation: r, out }) => `${r}${out ? ">" : "<"}`).join(" ");
    if (!kinds.has(key)) kinds.set(key, { steps, via: [] });
    if (via !== null) kinds.get(key).via.push(via);
  };
  const first = [...source.around(head, true)],
    last = new Map();
  for (const step of source.around(tail, true)) {
    if (!last.has(step.other)) last.set(step.other, []);
    last.get(step.other).push(step);
  }
  for (const step of first) {
    if (step.other === tail && !(step.relation === relation && step.out)) add([step], null);
    if (step.other === head || step.other === tail) continue;
    for (const back of last.get(step.other) ?? []) add([step, { relation: back.relation, out: !back.out }], step.other);
  }
  return [...kinds.values()]
    .map((kind) => ({ ...kind, ...pathSupport(source, kind.steps, relation) }))
    .filter(({ confirmed, support }) => confirmed > 0 && support > 1)
    .sort((a, b) => lowerBound(b) - lowerBound(a))
    .filter(otherThanBefore)
    .slice(0, MOST_PATHS)
    .map((kind) => pathSentence(source, kind, head, relation, tail));
}

// A relation that holds both ways gives each path several times: one is enough.
const otherThanBefore = (kind, place, all) =>
  !all
    .slice(0, place)
    .some((other) => other.via[0] === kind.via[0] && other.confirmed === kind.confirmed && other.support === kind.support);
const lowerBound = ({ confirmed, support }) => (confirmed + 0.5) / (support + 2);

// Pairs of entities with such a path whose first entity was seen with the relation, and those that have it.
function pathSupport(source, steps, relation) {
  const { names } = source,
    heads = source.seen("head", relation);
  const reached = new Int32Array(names.length).fill(-1),
    truth = new Int32Array(names.length).fill(-1);
  let support = 0,
    confirmed = 0,
    walked = 0;
  const reach = (start, end) => {
    if (start === end || reached[end] === start) return;
    reached[end] = start;
    support += 1;
    if (truth[end] === start) confirmed += 1;
  };
  const each = (entity, { relation: r, out }, visit) => {
    const [first, last] = source.range(entity, r, out);
    for (let at = first; at < last; at += 1) {
      const fact = source.lists[at];
      if (fact < source.info.splits[0]) visit(source.facts[3 * fact + (out ? 2 : 0)]);
    }
    walked += last - first;
  };
  for (let start = 0; start < names.length && walked < MOST_WALKED; start += 1) {
    if (!heads[start]) continue;
    each(start, { relation, out: true }, (end) => (truth[end] = start));
    each(start, steps[0], (middle) => {
      if (steps.length === 1) reach(start, middle);
      else each(middle, steps[1], (end) => reach(start, end));
    });
  }
  return { support, confirmed };
}

function pathSentence(source, { steps, via, support, confirmed }, head, relation, tail) {
  const name = (r) => visible(source.info.relations[r]);
  const arrow = ({ relation: r, out }) => (out ? ` – ${name(r)} → ` : ` ← ${name(r)} – `);
  const made = [source.ref(head), arrow(steps[0])];
  if (steps.length > 1) {
    made.push(source.ref(via[0]), arrow(steps[1]));
  }
  made.push(source.ref(tail));
  const more = via.length > 1 ? `, and ${plural(via.length - 1, "such path")} more` : "";
  made.push(
    `${more}. Of ${plural(support, "pair")} linked like this, ${count(confirmed)} ${confirmed === 1 ? "has" : "have"} “${name(relation)}”.`,
  );
  return { sign: 1, weight: confirmed / support, parts: made };
}

// Entities like one end of the fact that stand in its place in the graph.
function similarReasons(source, head, relation, tail, side) {
  const [own, other] = side === "head" ? [head, tail] : [tail, head];
  const similarity = source.model.similarities(own);
  const found = [...source.known(side, other, relation)]
    .filter(([id, split]) => split === "train" && id !== own && similarity[id] > 0.3)
    .map(([id]) => id)
    .sort((a, b) => similarity[b] - similarity[a])
    .slice(0, 3);
  if (!found.length) return [];
  const list = found.flatMap((id, place) => [place ? ", " : "", source.ref(id), ` (${similarity[id].toFixed(2)})`]);
  const said = ` · ${visible(source.info.relations[relation])} · `;
  const fact =
    side === "head"
      ? [`: they have …${said}`, source.ref(tail), "."]
      : [": the graph has ", source.ref(head), `${said}…`, " for them."];
  return [{ sign: 1, parts: ["Like ", source.ref(own), " (cosine): ", ...list, ...fact] }];
}

// The fact of an entity that tells most about whether it stands on that side of the relation at all: how
// many of the others that share it do, and how many would if it told nothing (attributes.py).
function sharedReasons(source, entity, relation, side) {
  const stands = source.seen(side, relation),
    shares = new Map();
  // Of all entities on a side of a relation, which share stands there.
  const share = (where, r) => {
    const key = `${where}${r}`;
    if (!shares.has(key)) {
      const here = source.seen(where, r);
      let all = 0,
        both = 0;
      for (let e = 0; e < here.length; e += 1) {
        all += here[e];
        both += here[e] & stands[e];
      }
      shares.set(key, both / Math.max(1, all));
    }
    return shares.get(key);
  };
  let best = null;
  const facts = [...source.around(entity, true)].flatMap((fact) =>
    fact.out && fact.other === entity ? [fact, { ...fact, out: false }] : [fact],
  );
  facts.sort((a, b) => b.out - a.out || a.relation - b.relation || a.other - b.other);
  for (const { relation: r, out, other } of facts) {
    const where = out ? "head" : "tail";
    let size = 0,
      standing = -stands[entity];
    const [first, last] = source.range(other, r, !out);
    for (let at = first; at < last; at += 1) {
      const fact = source.lists[at];
      if (fact >= source.info.splits[0]) continue;
      size += 1;
      standing += stands[source.facts[3 * fact + (out ? 0 : 2)]];
    }
    const expected = (size - 1) * share(where, r) + 1,
      found = standing + 1;
    const told = r === relation && where === side ? 0 : found * Math.log(found / expected) - found + expected;
    if (!best || told > best.told) best = { told, others: size - 1, standing, expected: expected - 1, out, relation: r, other };
  }
  if (!best || best.others < LEAST_OTHERS) return [];
  const { others, standing, expected } = best;
  const most = standing >= Math.max(others / 2, MORE * expected),
    few = expected >= Math.max(LEAST_EXPECTED, FEWER * standing);
  return most || few ? [sharedSentence(source, best, relation, side)] : [];
}

function sharedSentence(source, { others, standing, expected, out, relation: r, other }, relation, side) {
  const name = (each) => visible(source.info.relations[each]);
  const fact = out ? [`? · ${name(r)} · `, source.ref(other)] : [source.ref(other), ` · ${name(r)} · ?`];
  const counted = standing < 2 ? `${standing ? count(standing) : "none"} is a ${side} of` : `${count(standing)} are ${side}s of`;
  const said = `”, ${counted} “${name(relation)}”; ${rounded.format(expected)} would be expected.`;
  return { sign: standing > expected ? 1 : -1, parts: [`Of ${count(others)} others with “`, ...fact, said] };
}
