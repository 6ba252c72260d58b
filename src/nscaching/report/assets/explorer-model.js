// The int8 copy of the model: the query of each scoring function, and its match with all entities.
function bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text),
    made = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) made[at] = raw.charCodeAt(at);
  return made;
}
const asFloats = (text) => new Float32Array(bytes(text).buffer);
const asInts = (text) => new Int32Array(bytes(text).buffer);
const asBytes = (text) => new Int8Array(bytes(text).buffer);
const asShorts = (text) => new Uint16Array(bytes(text).buffer);

class Model {
  constructor(packed) {
    Object.assign(this, { scoring: packed.scoring, dim: packed.dim, norm: packed.norm });
    Object.assign(this, { normalize: packed.normalize, reciprocal: packed.reciprocal });
    this.values = asBytes(packed.values);
    this.scale = asFloats(packed.scale);
    this.relations = asFloats(packed.relation);
    this.count = this.scale.length;
    this.width = this.values.length / this.count;
    this.relationWidth = packed.relation_width;
    this.lengths = null;
  }

  row(entity) {
    const start = entity * this.width;
    return Float32Array.from(this.values.subarray(start, start + this.width), (value) => value * this.scale[entity]);
  }

  relation(relation) {
    return this.relations.subarray(relation * this.relationWidth, (relation + 1) * this.relationWidth);
  }

  // The score of each entity as the tail of (anchor, relation, ?) or the head of (?, relation, anchor).
  scores(side, anchor, relation) {
    // Reciprocal relations have rows of their own, and ask for the head as for a tail.
    const other = this.reciprocal && side === "head" ? this.relations.length / this.relationWidth / 2 : 0;
    const r = this.relation(relation + other),
      e = this.row(anchor),
      tail = side === "tail" || this.reciprocal;
    switch (this.scoring) {
      case "distmult":
        return this.dots(e.map((x, k) => x * r[k]));
      case "complex":
        return this.dots(complexProduct(e, r, !tail));
      case "simple":
        return this.dots(tail ? swapped(e.map((x, k) => x * r[k])) : swapped(e).map((x, k) => x * r[k]));
      case "quate":
        return this.dots(hamilton(e, this.normalize ? unitQuaternions(r) : r, !tail));
      case "rotate":
        return this.moduli(complexProduct(e, rotation(r), !tail));
      default:
        return this.distances(e, r, tail);
    }
  }

  dots(query) {
    const { values, scale, width, count: n } = this,
      made = new Float32Array(n);
    for (let entity = 0, at = 0; entity < n; entity += 1) {
      let sum = 0;
      for (let k = 0; k < width; k += 1, at += 1) sum += query[k] * values[at];
      made[entity] = sum * scale[entity];
    }
    return made;
  }

  moduli(query) {
    const { values, scale, width, dim, count: n } = this,
      made = new Float32Array(n);
    for (let entity = 0; entity < n; entity += 1) {
      const start = entity * width,
        s = scale[entity];
      let sum = 0;
      for (let k = 0; k < dim; k += 1)
        sum += Math.hypot(query[k] - s * values[start + k], query[dim + k] - s * values[start + dim + k]);
      made[entity] = -sum;
    }
    return made;
  }

  // TransE, TransH and TransD: what the relation sees of an entity differs.
  distances(e, r, tail) {
    const { dim, norm, count: n } = this,
      seen = this.view(r),
      made = new Float32Array(n);
    const query = seen(e).map((x, k) => (tail ? x + r[k] : x - r[k]));
    for (let entity = 0; entity < n; entity += 1) {
      const other = seen(this.row(entity));
      let sum = 0;
      for (let k = 0; k < dim; k += 1) {
        const apart = query[k] - other[k];
        sum += norm === 1 ? Math.abs(apart) : apart * apart;
      }
      made[entity] = norm === 1 ? -sum : -Math.sqrt(sum);
    }
    return made;
  }

  view(r) {
    const { dim, scoring } = this;
    const unit = (x) => {
      const length = Math.max(Math.hypot(...x), 1e-12);
      return x.map((value) => value / length);
    };
    if (scoring === "transe") return this.normalize ? unit : (row) => row;
    const w = r.subarray(dim, 2 * dim),
      normal = scoring === "transh" ? unit(w) : w;
    return (row) => {
      const x = unit(row.subarray(0, dim));
      const against = scoring === "transh" ? normal : row.subarray(dim, 2 * dim);
      let share = 0;
      for (let k = 0; k < dim; k += 1) share += against[k] * x[k];
      if (scoring === "transh") share = -share;
      return x.map((value, k) => value + share * normal[k]);
    };
  }

  // Cosine similarity with each entity; the scale of a row does not matter for it.
  similarities(entity) {
    const { values, width, count: n } = this;
    if (!this.lengths) {
      this.lengths = new Float32Array(n);
      for (let each = 0, at = 0; each < n; each += 1) {
        let sum = 0;
        for (let k = 0; k < width; k += 1, at += 1) sum += values[at] * values[at];
        this.lengths[each] = Math.sqrt(sum) || 1;
      }
    }
    const made = new Float32Array(n),
      own = values.subarray(entity * width, (entity + 1) * width);
    for (let each = 0, at = 0; each < n; each += 1) {
      let sum = 0;
      for (let k = 0; k < width; k += 1, at += 1) sum += own[k] * values[at];
      made[each] = sum / (this.lengths[each] * this.lengths[entity]);
    }
    return made;
  }
}

function complexProduct(a, b, conjugate) {
  const dim = a.length / 2,
    sign = conjugate ? -1 : 1,
    made = new Float32Array(2 * dim);
  for (let k = 0; k < dim; k += 1) {
    const re = b[k],
      im = sign * b[dim + k];
    made[k] = a[k] * re - a[dim + k] * im;
    made[dim + k] = a[k] * im + a[dim + k] * re;
  }
  return made;
}

// Quaternions as [a, b, c, d], the four parts side by side, normalised.
function unitQuaternions(r) {
  const dim = r.length / 4;
  return r.map((x, k) => x / Math.max(Math.hypot(...[0, 1, 2, 3].map((part) => r[part * dim + (k % dim)])), 1e-12));
}

function hamilton(x, by, conjugate) {
  const dim = x.length / 4,
    sign = conjugate ? -1 : 1,
    made = new Float32Array(4 * dim);
  for (let k = 0; k < dim; k += 1) {
    const [p, q, u, v] = [x[k], x[dim + k], x[2 * dim + k], x[3 * dim + k]];
    const [a, b, c, d] = [by[k], sign * by[dim + k], sign * by[2 * dim + k], sign * by[3 * dim + k]];
    made[k] = p * a - q * b - u * c - v * d;
    made[dim + k] = p * b + q * a + u * d - v * c;
    made[2 * dim + k] = p * c - q * d + u * a + v * b;
    made[3 * dim + k] = p * d + q * c - u * b + v * a;
  }
  return made;
}

const swapped = (row) => {
  const half = row.length / 2;
  return row.map((_, k) => row[k < half ? k + half : k - half]);
};
const rotation = (phases) =>
  Float32Array.from({ length: 2 * phases.length }, (_, k) =>
    k < phases.length ? Math.cos(phases[k]) : Math.sin(phases[k - phases.length]),
  );

// The ids of the k largest numbers, best first; minus infinity is never one of them.
function largest(numbers, k) {
  const ids = [],
    kept = [];
  for (let id = 0; id < numbers.length; id += 1) {
    const value = numbers[id];
    if (value === -Infinity || (ids.length >= k && value <= kept[kept.length - 1])) continue;
    let place = kept.length;
    while (place > 0 && kept[place - 1] < value) place -= 1;
    kept.splice(place, 0, value);
    ids.splice(place, 0, id);
    if (ids.length > k) {
      ids.pop();
      kept.pop();
    }
  }
  return ids;
}

// From scores to probabilities, as Python fitted them on the valid facts: what the fit gives is linear
// in the log-softmax and the deviation of the score within its question, with a term of each of the
// two entities.
class Calibration {
  constructor(packed, count) {
    this.temperature = packed.temperature;
    this.takenOut = packed.taken_out;
    this.count = count;
    this.sides = Object.fromEntries(
      Object.entries(packed.sides).map(([side, fit]) => [side, { ...fit, answer: terms(fit.answer), anchor: terms(fit.anchor) }]),
    );
  }

  term({ low, step, values }, relation, entity) {
    return low[relation] + step[relation] * values[relation * this.count + entity];
  }

  // Shapes: one number per entity; `known` maps answers of the graph to their split.
  logits(side, anchor, relation, scores, known) {
    const { temperature, count: n } = this,
      fit = this.sides[side];
    let sum = 0,
      squares = 0,
      top = -Infinity,
      mass = 0;
    for (let e = 0; e < n; e += 1) {
      sum += scores[e];
      if (known.get(e) !== "train") top = Math.max(top, temperature * scores[e]);
    }
    const mean = sum / n;
    for (let e = 0; e < n; e += 1) {
      squares += (scores[e] - mean) ** 2;
      if (known.get(e) !== "train") mass += Math.exp(temperature * scores[e] - top);
    }
    const spread = Math.max(Math.sqrt(squares / Math.max(1, n - 1)), 1e-6),
      normaliser = top + Math.log(mass);
    const [softmax, deviations] = [fit.softmax[relation], fit.deviations[relation]];
    const slope = temperature * softmax + deviations / spread;
    const base =
      fit.intercept[relation] - softmax * normaliser - (deviations * mean) / spread + this.term(fit.anchor, relation, anchor);
    const made = new Float32Array(n);
    for (let e = 0; e < n; e += 1) made[e] = slope * scores[e] + base + this.term(fit.answer, relation, e);
    return made;
  }

  // The probability that an answer is true: missing facts are taken out of the negatives of the fit
  // (answer_logits in Python).
  chance(logit) {
    const odds = Math.exp(Math.min(logit, 100));
    return (2 * odds) / (1 + odds + Math.sqrt((1 - odds) ** 2 + 4 * (1 - this.takenOut) * odds));
  }
}

const terms = ({ low, step, values }) => ({ low, step, values: bytes(values) });
