// Review: a queue of discovered facts, answered by key, kept by the browser, written as two files.
const ANSWERS_OF = { y: "accepted", n: "rejected", s: "skipped" };
const AT_ONCE = 1000; // entities that are asked for together; the server has a bound, and addresses have
const factKey = (fact) => `${fact.head.id} ${fact.relation} ${fact.tail.id}`;

class Review {
  constructor(source) {
    this.source = source;
    this.key = `nscaching-review-${source.info.fingerprint}`;
    this.given = []; // [head, relation, tail, answer, names], the last one last
    this.kept = true;
    this.queue = null;
    this.read();
    addEventListener("storage", (event) => {
      if (event.key === this.key) {
        this.read();
        this.changed();
      }
    });
  }

  read() {
    try {
      const found = JSON.parse(stored(this.key) ?? "[]");
      this.given = Array.isArray(found)
        ? found.filter((each) => Array.isArray(each) && each.length === 4 && each[3] in ANSWERS_OF)
        : [];
    } catch {
      this.given = [];
    }
    this.index();
  }

  index() {
    this.answers = new Map(this.given.map(([head, relation, tail, answer]) => [`${head} ${relation} ${tail}`, answer]));
  }
  write() {
    this.index();
    this.kept = store(this.key, JSON.stringify(this.given));
    this.changed();
  }

  answer(fact, answer) {
    const key = factKey(fact);
    this.given = this.given.filter(([head, relation, tail]) => `${head} ${relation} ${tail}` !== key);
    this.given.push([fact.head.id, fact.relation, fact.tail.id, answer]);
    this.write();
  }

  undo() {
    const last = this.given.pop();
    if (last) this.write();
    return last;
  }

  forget(fact) {
    this.given = this.given.filter(([head, relation, tail]) => `${head} ${relation} ${tail}` !== factKey(fact));
    this.write();
  }
  again() {
    this.given = this.given.filter((each) => each[3] !== "s");
    this.write();
  }
  count(answer) {
    return this.given.filter((each) => each[3] === answer).length;
  }
  waiting() {
    return (this.queue ?? []).filter((fact) => !this.answers.has(factKey(fact)));
  }

  async load() {
    if (this.queue) return true;
    const { ready, facts } = await this.source.queue();
    if (ready) {
      this.queue = facts;
      this.changed();
    }
    return ready;
  }

  changed() {
    byId("waiting").textContent = this.queue ? count(this.waiting().length) : "";
    document.dispatchEvent(new Event("reviewed"));
  }

  // The facts of one answer as text: head, relation and tail per line, tabs between them.
  async file(answer) {
    const chosen = this.given.filter((each) => each[3] === answer);
    const ids = [...new Set(chosen.flatMap(([head, , tail]) => [head, tail]))];
    const names = new Map();
    for (let first = 0; first < ids.length; first += AT_ONCE)
      for (const { id, name } of await this.source.refs(ids.slice(first, first + AT_ONCE))) names.set(id, name);
    const lines = chosen.map(([head, relation, tail]) => [
      names.get(head),
      this.source.info.relations[relation],
      names.get(tail),
    ]);
    const whole = lines.filter((line) => line.every((name) => name !== undefined && !name.includes("\t")));
    return { text: whole.map((line) => `${line.join("\t")}\n`).join(""), left: lines.length - whole.length };
  }

  async download(answer) {
    const { text, left } = await this.file(answer);
    const address = URL.createObjectURL(new Blob([text], { type: "text/tab-separated-values" }));
    const link = make("a", { href: address, download: `${ANSWERS_OF[answer]}.tsv` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    say(`${ANSWERS_OF[answer]}.tsv written${left ? `; ${plural(left, "fact")} left out: a name has a tab in it` : ""}`);
  }
}

// Yes and no beside a new fact anywhere.
function verdictButtons(source, fact) {
  const { review } = source;
  const made = ["y", "n"].map((answer) =>
    make(
      "button",
      {
        type: "button",
        class: `verdict ${ANSWERS_OF[answer]}`,
        title: answer === "y" ? "Accept" : "Reject",
        "aria-label": `${answer === "y" ? "Accept" : "Reject"} this fact`,
        onclick: () => {
          if (review.answers.get(factKey(fact)) === answer) review.forget(fact);
          else review.answer(fact, answer);
          show();
          say(review.answers.has(factKey(fact)) ? ANSWERS_OF[answer] : "answer taken back");
        },
      },
      answer === "y" ? "✓" : "✗",
    ),
  );
  const show = () =>
    made.forEach((button, place) =>
      button.setAttribute("aria-pressed", String(review.answers.get(factKey(fact)) === "yn"[place])),
    );
  show();
  return make("span", { class: "verdicts" }, made);
}

function reviewView(source) {
  const { review } = source;
  const card = make("section", { class: "card review", "aria-label": "Fact to review" });
  const counts = make("p", { class: "tally" });
  const files = make("div", { class: "files" });
  const past = make("ul", { class: "past" });
  let turn = 0;

  const draw = async () => {
    const mine = ++turn;
    const waiting = review.waiting(),
      whole = review.queue?.length ?? 0;
    counts.replaceChildren(
      `${count(whole - waiting.length)} of ${count(whole)} seen · ${count(review.count("y"))} accepted · ${count(review.count("n"))} rejected · ${count(review.count("s"))} skipped`,
    );
    files.replaceChildren(
      ...["y", "n"].map((answer) =>
        make(
          "button",
          { type: "button", disabled: review.count(answer) === 0, onclick: () => later(() => review.download(answer)) },
          `Download ${ANSWERS_OF[answer]}.tsv (${count(review.count(answer))})`,
        ),
      ),
    );
    if (!review.kept)
      files.append(
        make("p", { class: "warning" }, "This browser keeps nothing for this page: download the files before you close it."),
      );
    if (!waiting.length) card.replaceChildren(...done());
    else await drawFact(waiting[0], () => mine === turn);
    await drawPast(() => mine === turn);
  };
  const done = () => [
    make("h2", { tabindex: "-1" }, review.queue?.length ? "All facts are reviewed." : "There is no new fact to review."),
    buttons(false),
    review.count("s")
      ? make(
          "p",
          {},
          make(
            "button",
            { type: "button", onclick: () => review.again() },
            `Look at ${plural(review.count("s"), "skipped fact")} again`,
          ),
        )
      : "",
  ];
  const drawFact = async (fact, current) => {
    const reasons = make("div", { class: "because" });
    card.replaceChildren(
      make("p", { class: "question" }, "Is this true?"),
      make("h2", { class: "large", tabindex: "-1" }, triple(source, fact)),
      make("p", { class: "sure" }, belief(fact), " ", flagList(fact.flags)),
      buttons(true),
      reasons,
    );
    const found = await source.explain(fact.head.id, fact.relation, fact.tail.id);
    if (current()) reasons.replaceChildren(make("h3", {}, "Why"), reasonList(found));
  };
  const buttons = (open) =>
    make(
      "div",
      { class: "answers", role: "group", "aria-label": "Answer" },
      [
        ["y", "Yes"],
        ["n", "No"],
        ["s", "Skip"],
        ["u", "Undo"],
      ].map(([key, label]) =>
        make(
          "button",
          {
            type: "button",
            class: ANSWERS_OF[key] ?? "undo",
            "aria-keyshortcuts": key,
            disabled: key === "u" ? review.given.length === 0 : !open,
            onclick: () => act(key),
          },
          label,
          " ",
          make("kbd", { "aria-hidden": "true" }, key),
        ),
      ),
    );
  const act = (key) => {
    const fact = review.waiting()[0];
    if (key === "u") {
      if (!review.given.length) return say("Nothing to undo");
      review.undo();
    } else if (fact) review.answer(fact, key);
    else return;
    const next = review.waiting()[0];
    const said = key === "u" ? "Undone" : ANSWERS_OF[key];
    say(
      next
        ? `${said}. Next: ${visible(next.head.name)}, ${relationName(source, next.relation)}, ${visible(next.tail.name)}`
        : `${said}. All facts are reviewed.`,
    );
    // A button that was pressed is drawn anew: the focus goes to its successor.
    [...card.querySelectorAll(".answers button")]
      .find((button) => button.getAttribute("aria-keyshortcuts") === key && !button.disabled)
      ?.focus();
  };
  const drawPast = async (current) => {
    const recent = review.given.slice(-12).reverse();
    const refs = new Map(
      (await source.refs([...new Set(recent.flatMap(([head, , tail]) => [head, tail]))])).map((entity) => [entity.id, entity]),
    );
    if (!current()) return;
    past.replaceChildren(
      ...recent.map(([head, relation, tail, answer]) => {
        const fact = { head: refs.get(head), relation, tail: refs.get(tail) };
        return fact.head && fact.tail
          ? make("li", { class: ANSWERS_OF[answer] }, make("span", { class: "mark" }, ANSWERS_OF[answer]), triple(source, fact))
          : "";
      }),
    );
    past.parentElement.hidden = recent.length === 0;
  };
  const onKey = (event) => {
    if (isTyping(event) || !(event.key in ANSWERS_OF || event.key === "u")) return;
    event.preventDefault();
    act(event.key);
  };
  const load = async () => {
    while (!(await review.load())) {
      card.replaceChildren(make("p", { class: "quiet" }, "Looking for new facts in the whole graph …"));
      await new Promise((resolve) => setTimeout(resolve, 1000));
      if (!card.isConnected) return;
    }
    await draw();
  };
  document.addEventListener("keydown", onKey);
  document.addEventListener("reviewed", draw);
  leaving(() => {
    document.removeEventListener("keydown", onKey);
    document.removeEventListener("reviewed", draw);
  });
  later(load);
  return [
    heading("Review", counts),
    card,
    files,
    make("section", { class: "card", hidden: true }, make("h2", {}, "Your last answers"), past),
  ];
}
