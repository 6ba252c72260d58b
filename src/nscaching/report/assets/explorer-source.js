// Where answers come from: the data inside this file, or Python behind `nscaching explore`.
// Both have the same calls and give the same shapes; see explorer_answers.py.
const NEW_FACTS = 10,
  PER_QUESTION = 3,
  SIMILAR = 8,
  ANSWERS = 20,
  FIRST_OF_GROUP = 18,
  MOST_OF_ENTITY = 2000,
  PAGE = 200;

// A new fact of an entity that is shown unasked: probable enough, and against no fact of the graph.
const worthShowing = ({ probability, flags }) =>
  probability === null ? !flags.length : probability >= 0.01 && !flags.some(({ kind }) => kind === "contradicts");

class EmbeddedSource {
  constructor(data) {
    this.info = data;
    this.names = data.entities;
    this.facts = asInts(data.facts);
    this.types = bytes(data.type);
    this.places = asShorts(data.places);
    this.model = new Model(data.model);
    this.degree = new Uint32Array(this.names.length);
    this.numFacts = this.facts.length / 3;
    this.index = null;
    this.link();
    this.seenCache = new Map();
    this.calibration = data.calibration ? new Calibration(data.calibration, this.names.length) : null;
    this.rejected = new Set(data.rejected.map((triple) => triple.join(" ")));
  }

  // For each entity the facts that hold it, by relation, those it is the head of first: `place` is where
  // its own begin in `lists`, and `roles` says of each the relation and the end.
  link() {
    const { facts, degree, numFacts } = this;
    for (let at = 0; at < numFacts; at += 1) {
      degree[facts[3 * at]] += 1;
      degree[facts[3 * at + 2]] += 1;
    }
    this.place = new Uint32Array(degree.length + 1);
    degree.forEach((size, entity) => {
      this.place[entity + 1] = this.place[entity] + size;
    });
    const ordered = new Uint32Array(numFacts).map((_, fact) => fact).sort((a, b) => facts[3 * a + 1] - facts[3 * b + 1] || a - b);
    this.lists = new Uint32Array(2 * numFacts);
    this.roles = new Uint32Array(2 * numFacts);
    const next = this.place.slice();
    const put = (fact, column) => {
      const at = next[facts[3 * fact + column]]++;
      this.lists[at] = fact;
      this.roles[at] = 2 * facts[3 * fact + 1] + (column ? 1 : 0);
    };
    for (let first = 0, last = 0; first < numFacts; first = last) {
      while (last < numFacts && facts[3 * ordered[last] + 1] === facts[3 * ordered[first] + 1]) last += 1;
      for (const column of [0, 2]) for (let at = first; at < last; at += 1) put(ordered[at], column);
    }
  }

  // Where the facts of an entity with a relation stand in `lists`: from the first up to the second.
  range(entity, relation, out) {
    const { roles, place } = this,
      wanted = 2 * relation + (out ? 0 : 1);
    let low = place[entity],
      high = place[entity + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (roles[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    while (high < place[entity + 1] && roles[high] === wanted) high += 1;
    return [low, high];
  }

  ref(id) {
    return { id, name: this.names[id], type: this.types[id], degree: this.degree[id] };
  }
  split(fact) {
    const [train, valid] = this.info.splits;
    return fact < train ? "train" : fact < train + valid ? "valid" : "test";
  }

  // The facts of an entity, as {relation, out, other, split}; a loop comes once.
  *around(entity, trainOnly = false) {
    const { facts, lists, place, roles } = this;
    for (let at = place[entity]; at < place[entity + 1]; at += 1) {
      const fact = lists[at],
        out = roles[at] % 2 === 0,
        other = facts[3 * fact + (out ? 2 : 0)];
      if ((!out && other === entity) || (trainOnly && fact >= this.info.splits[0])) continue;
      yield { relation: facts[3 * fact + 1], out, other, fact };
    }
  }

  known(side, anchor, relation) {
    const found = new Map(),
      out = side === "tail",
      [first, last] = this.range(anchor, relation, out);
    for (let at = first; at < last; at += 1) {
      const fact = this.lists[at],
        other = this.facts[3 * fact + (out ? 2 : 0)];
      if (!found.has(other)) found.set(other, this.split(fact));
    }
    return found;
  }

  // Whether an entity stood on that side of the relation in training: one byte per entity.
  seen(side, relation) {
    const key = `${side}${relation}`;
    if (!this.seenCache.has(key)) {
      const made = new Uint8Array(this.names.length),
        column = side === "tail" ? 2 : 0;
      for (let at = 0; at < this.info.splits[0]; at += 1)
        if (this.facts[3 * at + 1] === relation) made[this.facts[3 * at + column]] = 1;
      this.seenCache.set(key, made);
    }
    return this.seenCache.get(key);
  }

  prepare() {
    this.index ??= new NameIndex(this.names, this.degree);
  }

  async find(text) {
    this.prepare();
    const { ids, total } = this.index.find(text);
    return { entities: ids.map((id) => this.ref(id)), total };
  }

  async refs(ids) {
    return ids.map((id) => this.ref(id));
  }

  async entity(id) {
    if (!(id in this.names)) return null;
    const roles = [...new Set(this.roles.subarray(this.place[id], this.place[id + 1]))].sort((a, b) => (a % 2) - (b % 2) || a - b);
    const all = roles
      .map((role) => ({ relation: role >> 1, out: role % 2 === 0, facts: this.group(id, role >> 1, role % 2 === 0) }))
      .filter(({ facts }) => facts.length);
    const first = Math.max(1, Math.min(FIRST_OF_GROUP, Math.floor(MOST_OF_ENTITY / Math.max(1, all.length))));
    const groups = all.map(({ facts, ...group }) => ({ ...group, total: facts.length, facts: this.page(facts, 0, first) }));
    const others = new Set(all.flatMap(({ facts }) => facts.map(([other]) => other)));
    others.delete(id);
    const similarity = this.model.similarities(id);
    similarity[id] = -Infinity;
    const similar = largest(similarity, SIMILAR).map((other) => ({ ...this.ref(other), similarity: similarity[other] }));
    return { ...this.ref(id), groups, neighbours: others.size, similar };
  }

  // Facts with a relation as [other, split], the largest other entity first; a loop is one that it heads.
  group(id, relation, out, loops = false) {
    return [...this.known(out ? "tail" : "head", id, relation)]
      .filter(([other]) => out || loops || other !== id)
      .sort(([a], [b]) => this.degree[b] - this.degree[a] || a - b);
  }
  page(facts, start, most = PAGE) {
    return facts.slice(start, start + most).map(([other, split]) => ({ other: this.ref(other), split }));
  }
  async moreFacts(id, relation, out, start) {
    return this.page(this.group(id, relation, out), start);
  }
  async moreKnown(side, anchor, relation, start) {
    return this.page(this.group(anchor, relation, side === "tail", true), start);
  }

  // Links between the shown neighbours of an entity, for the drawing.
  async links(ids) {
    const among = new Set(ids),
      made = new Map();
    for (const id of ids)
      for (const { out, other } of this.around(id))
        if (out && other !== id && among.has(other)) made.set(`${id} ${other}`, [id, other]);
    return [...made.values()];
  }

  async ask(side, anchor, relation, most = ANSWERS) {
    const held = this.group(anchor, relation, side === "tail", true),
      known = { total: held.length, facts: this.page(held, 0) };
    return { known, answers: this.scored(side, anchor, relation, new Map(held), most) };
  }

  triple(side, anchor, relation, other) {
    const [head, tail] = side === "tail" ? [anchor, other] : [other, anchor];
    return { head: this.ref(head), relation, tail: this.ref(tail) };
  }

  // The best new answers, by probability where the run is calibrated, else by score.
  scored(side, anchor, relation, known, most) {
    const scores = this.model.scores(side, anchor, relation);
    const logits = this.calibration?.logits(side, anchor, relation, scores, known) ?? null;
    const ranked = logits ? logits.slice() : scores.slice();
    for (const other of known.keys()) ranked[other] = -Infinity;
    if (!this.info.loops.includes(relation)) ranked[anchor] = -Infinity;
    if (this.rejected.size)
      for (let other = 0; other < ranked.length; other += 1)
        if (this.rejected.has(side === "tail" ? `${anchor} ${relation} ${other}` : `${other} ${relation} ${anchor}`))
          ranked[other] = -Infinity;
    return largest(ranked, most).map((other) => {
      const triple = this.triple(side, anchor, relation, other);
      return {
        ...triple,
        score: scores[other],
        probability: logits ? this.calibration.chance(logits[other]) : null,
        flags: this.flags(triple, side),
        known: null,
      };
    });
  }

  // Doubts about a new fact: never seen with the relation, or against a fact where one is the rule.
  flags({ head, relation, tail }, side) {
    const made = [];
    const answer = side === "tail" ? tail : head;
    // An entity that stands there once as a rule is new there, so that the doubt would say nothing.
    const recurs = !this.info.single[side === "tail" ? "head" : "tail"].includes(relation);
    if (recurs && !this.seen(side, relation)[answer.id]) made.push({ kind: "unseen", parts: ["never seen with this relation"] });
    const against = this.contradicted(head.id, relation, tail.id);
    if (against)
      made.push({
        kind: "contradicts",
        parts: ["contradicts ", this.ref(against[0]), ` · ${visible(this.info.relations[relation])} · `, this.ref(against[1])],
      });
    return made;
  }

  contradicted(head, relation, tail) {
    const { single } = this.info;
    for (const [other] of single.tail.includes(relation) ? this.known("tail", head, relation) : [])
      if (other !== tail) return [head, other];
    for (const [other] of single.head.includes(relation) ? this.known("head", tail, relation) : [])
      if (other !== head) return [other, tail];
    return null;
  }

  // The most probable new facts of an entity: of the questions it was seen with, a few answers each.
  async fresh(id) {
    const asked = new Map();
    for (const { relation, out } of this.around(id, true)) asked.set(`${relation} ${out}`, [relation, out ? "tail" : "head"]);
    const found = [];
    for (const [relation, side] of asked.values()) {
      const answers = this.scored(side, id, relation, this.known(side, id, relation), 4 * PER_QUESTION);
      found.push(...answers.filter(worthShowing).slice(0, PER_QUESTION));
    }
    return found.sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0)).slice(0, NEW_FACTS);
  }

  async explain(head, relation, tail) {
    return reasonsOf(this, head, relation, tail);
  }
  async queue() {
    const facts = this.info.queue.map(([head, relation, tail, probability, score]) => {
      const triple = { head: this.ref(head), relation, tail: this.ref(tail) };
      return { ...triple, probability, score, flags: this.flags(triple, "tail") };
    });
    return { ready: true, facts };
  }

  async map() {
    return { places: this.places, types: this.types, degree: this.degree };
  }
}

class ServedSource {
  constructor(data) {
    this.info = data;
  }

  async get(path) {
    const answer = await fetch(path, { credentials: "omit" });
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error || answer.statusText);
    return value;
  }

  find(text) {
    return this.get(`api/find?text=${encodeURIComponent(text)}`);
  }
  refs(ids) {
    return ids.length ? this.get(`api/names?ids=${ids.join(",")}`) : [];
  }
  entity(id) {
    return this.get(`api/entity/${id}`);
  }
  moreFacts(id, relation, out, start) {
    return this.get(`api/facts/${out ? "tail" : "head"}/${id}/${relation}?from=${start}`);
  }
  async moreKnown(side, anchor, relation, start) {
    return (await this.get(`api/known/${side}/${anchor}/${relation}?from=${start}`)).facts;
  }
  links(ids) {
    return this.get(`api/links?ids=${ids.join(",")}`);
  }
  ask(side, anchor, relation) {
    return this.get(`api/ask/${side}/${anchor}/${relation}`);
  }
  fresh(id) {
    return this.get(`api/new/${id}`);
  }
  explain(head, relation, tail) {
    return this.get(`api/explain/${head}/${relation}/${tail}`);
  }
  queue() {
    return this.get("api/queue");
  }

  async map() {
    const { places, types, degree } = await this.get("api/map");
    return { places: asShorts(places), types: bytes(types), degree: asInts(degree) };
  }
}
