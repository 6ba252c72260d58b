// The view that explains keys, numbers, and where things are kept.
async function helpView(source) {
  const rows = [
    ["/", "find an entity"],
    ["y n s", "in Review: yes, no, skip"],
    ["u", "in Review: undo the last answer"],
    ["arrows + −", "on the map: move and zoom"],
    ["Enter", "on the map: open the entity in the middle"],
    ["Esc", "close the list of entities found"],
  ];
  const { info } = source;
  return [
    heading("Help"),
    make(
      "section",
      { class: "card" },
      make("h2", {}, "Keys"),
      make(
        "dl",
        { class: "keys" },
        rows.map(([keys, what]) =>
          make(
            "div",
            {},
            make(
              "dt",
              {},
              keys.split(" ").map((key) => [make("kbd", {}, key), " "]),
            ),
            make("dd", {}, what),
          ),
        ),
      ),
    ),
    make(
      "section",
      { class: "card" },
      make("h2", {}, "What the numbers mean"),
      make(
        "p",
        {},
        "A probability is how often such a new fact is true, if the graph lacks as many facts as were held out to fit it. A score is the raw output of the model: it compares answers to one question only.",
      ),
      make(
        "p",
        {},
        "Doubts are shown beside a fact: the entity was never seen on this side of the relation in training, or the graph has another answer for a relation that has one answer as a rule.",
      ),
      make(
        "p",
        {},
        "“Why?” lists paths of one or two facts that link head and tail, how often such a path goes with the relation, and similar entities that have the fact.",
      ),
    ),
    make(
      "section",
      { class: "card" },
      make("h2", {}, "Where things are kept"),
      make(
        "p",
        {},
        info.embedded
          ? "Everything is in this file; nothing is sent anywhere. Your answers in Review are kept by this browser for this graph."
          : "The answers come from nscaching on this computer. Your answers in Review are kept by this browser, for this graph and this address.",
      ),
      make(
        "p",
        {},
        "The two files that Review writes are what “nscaching update RUN --accept accepted.tsv --reject rejected.tsv” reads.",
      ),
    ),
  ];
}
