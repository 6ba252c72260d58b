"""What is written in any format is read back as the same triples."""

import csv
import gzip
import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, load_graph, read_triples
from nscaching.graph.columns import column_order
from tests.conftest import counting_steps

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n")
NAMES = st.text(CHARACTERS, min_size=1, max_size=8)
ODD = st.sampled_from(
    ["NA", "null", "nan", '"', '""', " ", " a ", "1", "#x", "é😀", "a,b", "\\", "0x1"]
)
TRIPLES = st.lists(st.tuples(NAMES | ODD, NAMES | ODD, NAMES | ODD), min_size=1, max_size=12)
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def named(graph: KnowledgeGraph, split: str = "train") -> list[tuple[str, str, str]]:
    e, r = graph.entities, graph.relations
    return [(e[h], r[k], e[t]) for h, k, t in graph.split(split).tolist()]


def escaped(name: str) -> str:
    return re.sub(
        r"[^!#-;=?-\[\]_a-z~]", lambda found: f"\\U{ord(found[0]):08X}", name, flags=re.DOTALL
    )


def as_tab(triples):
    return "".join("\t".join(triple) + "\n" for triple in triples).encode()


def as_csv(triples):
    out = io.StringIO()
    csv.writer(out).writerows(triples)
    return out.getvalue().encode()


def as_nt(triples):
    lines = (" ".join(f"<{escaped(name)}>" for name in triple) + " .\n" for triple in triples)
    return "".join(lines).encode()


def as_parquet(triples):
    out = io.BytesIO()
    columns = list(zip(*triples, strict=True))
    pq.write_table(
        pa.table({f"c{i}": pa.array(c, pa.string()) for i, c in enumerate(columns)}), out
    )
    return out.getvalue()


WRITERS = {".txt": as_tab, ".tsv": as_tab, ".csv": as_csv, ".nt": as_nt, ".triples": as_tab}
CASES = [(ending, write, False) for ending, write in WRITERS.items()]
CASES += [(ending, write, True) for ending, write in WRITERS.items()]
CASES += [(".parquet", as_parquet, False)]


@pytest.mark.parametrize(("ending", "write", "packed"), CASES)
@QUICK
@given(triples=TRIPLES)
def test_what_is_written_is_read(tmp_path, ending, write, packed, triples):
    if column_order(triples[0]) is not None:
        return
    if ending == ".csv" and "\ufeff" in triples[0][0][:1]:
        return  # The file then starts with a byte order mark.
    if write is as_tab and triples[0][0].startswith("\ufeff"):
        return
    if ending == ".csv" and not all(name.strip(" ") for triple in triples for name in triple):
        return  # A name of spaces is none there.
    data = write(triples)
    path = tmp_path / f"graph{ending}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(data) if packed else data)
    graph = load_graph(path)
    if ending == ".csv":  # where spaces around a name do not count
        triples = [tuple(name.strip(" ") for name in triple) for triple in triples]
    assert named(graph) == list(dict.fromkeys(triples))
    assert graph.name == "graph"
    order = [name for h, _, t in triples for name in (h, t)]
    assert graph.entities == list(dict.fromkeys(order))
    assert graph.relations == list(dict.fromkeys(r for _, r, _ in triples))
    assert graph.duplicates["train"] == len(triples) - len(set(triples))


PLAIN = [("a", "r", "b"), ("c", "r", "d")]


@pytest.mark.parametrize(
    "data",
    [
        b"a\tr\tb\nc\tr\td",
        b"\xef\xbb\xbfa\tr\tb\r\nc\tr\td\r\n",
        b"\n\na\tr\tb\n\n\nc\tr\td\n\n",
        b"a\tr\tb\rc\tr\td\r",
        b"a\tr\tb\n   \nc\tr\td\n",
    ],
    ids=["no last newline", "bom and crlf", "empty lines", "cr", "line of spaces"],
)
def test_line_ends_and_empty_lines(tmp_path, data):
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    assert named(load_graph(path)) == PLAIN
    path = tmp_path / "x.csv"
    path.write_bytes(data.replace(b"\t", b","))
    assert named(load_graph(path)) == PLAIN


def test_a_line_longer_than_a_block(tmp_path):
    long = "x" * (10 << 20)
    (tmp_path / "x.txt").write_text(f"a\tr\tb\n{long}\tr\tb\na\tr\tc\n")
    assert named(load_graph(tmp_path / "x.txt")) == [
        ("a", "r", "b"),
        (long, "r", "b"),
        ("a", "r", "c"),
    ]
    (tmp_path / "x.csv").write_text(f"a,r,b\n{long},r,b\na,r,c\n")
    assert load_graph(tmp_path / "x.csv").num_entities == 4


@pytest.mark.parametrize(
    "header",
    [
        "head,relation,tail",
        "Subject,Predicate,Object",
        "h,r,t",
        "source,relation,target",
        "Source, Interaction, Target",
        "HEAD,label,Tail",
    ],
)
def test_a_header_is_skipped_and_noted(tmp_path, header):
    for ending, sep in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"x{ending}"
        path.write_text(f"{header}\na,r,b\nc,r,d\n".replace(",", sep))
        graph = load_graph(path)
        assert named(graph) == PLAIN
        assert "column names" in graph.notes[0]


def test_a_header_in_another_order_moves_the_columns(tmp_path):
    (tmp_path / "x.csv").write_text("source,target,label\na,b,r\nc,d,r\n")
    assert named(load_graph(tmp_path / "x.csv")) == PLAIN


def test_single_letters_in_a_txt_file_are_a_triple(tmp_path):
    (tmp_path / "x.txt").write_text("h\tr\tt\n")
    assert named(load_graph(tmp_path / "x.txt")) == [("h", "r", "t")]


def test_ntriples(tmp_path):
    (tmp_path / "x.nt").write_text(
        "# a comment\n\n"
        "<http://e/a> <http://r> <http://e/b> . # after\n"
        "_:b1 <http://r> _:b2.\n"
        '<http://e/a> <http://r> "a \\"literal\\" . <x>"@en-GB .\n'
        '<http://e/a> <http://r> "5"^^<http://int> .\r\n'
        "<http://e/caf\\u00E9>\t<http://r>\t<http://e/\\U0001F600> .",
        encoding="utf-8",
    )
    graph = load_graph(tmp_path / "x.nt")
    assert named(graph) == [
        ("http://e/a", "http://r", "http://e/b"),
        ("_:b1", "http://r", "_:b2"),
        ("http://e/café", "http://r", "http://e/😀"),
    ]
    assert graph.notes == ["2 triples of x.nt with a literal as object were dropped."]


def test_a_folder_of_mixed_kinds(tmp_path):
    (tmp_path / "train.csv").write_text('"a, b",r,c\n')
    (tmp_path / "dev.tsv.gz").write_bytes(gzip.compress(b"c\tr\ta, b\n"))
    pq.write_table(pa.table({"h": ["c"], "r": ["q"], "t": ["new"]}), tmp_path / "test.parquet")
    (tmp_path / "README.txt").write_text("not triples")
    graph = load_graph(str(tmp_path))
    assert named(graph) == [("a, b", "r", "c")]
    assert named(graph, "valid") == [("c", "r", "a, b")]
    assert named(graph, "test") == [("c", "q", "new")]
    assert graph.name == tmp_path.name
    assert "1 entity of valid and test does not occur in train." in graph.notes
    assert "1 relation of valid and test does not occur in train." in graph.notes


def test_a_folder_with_train_only_can_be_split(tmp_path):
    lines = [f"e{a}\tr\te{b}\n" for a in range(12) for b in range(a)]
    (tmp_path / "train.txt").write_text("".join(lines))
    graph = load_graph(tmp_path, split=0.1, seed=3)
    assert len(graph.valid) == len(graph.test) == round(0.1 * len(lines))


def test_leaked_and_duplicate_lines_are_noted(tmp_path):
    (tmp_path / "train.txt").write_text("a\tr\tb\na\tr\tb\nb\tr\ta\n")
    (tmp_path / "test.txt").write_text("a\tr\tb\n")
    notes = load_graph(tmp_path).notes
    assert "1 duplicate line of train was dropped." in notes
    assert "1 triple of valid and test is also in train." in notes


def test_labelled_files(tmp_path):
    (tmp_path / "train.txt").write_text("a\tr\tb\n")
    (tmp_path / "valid.labeled.txt").write_text("a\tr\tb\t1\na\tr\tz\t-1\n")
    graph = load_graph(tmp_path)
    assert graph.labelled.keys() == {"valid"}
    assert graph.labelled["valid"].dtype == np.int32
    assert graph.labelled["valid"].tolist() == [[0, 0, 1, 1], [0, 0, 2, -1]]
    assert graph.entities == ["a", "b", "z"]


def test_many_triples_load_without_a_loop_over_them(tmp_path):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 1000, (100_000, 3))
    lines = (f"entity_{h}\trelation_{r % 40}\tentity_{t}\n" for h, r, t in ids.tolist())
    (tmp_path / "x.txt").write_text("".join(lines))
    graph, steps = counting_steps(lambda: load_graph(tmp_path / "x.txt"))
    assert steps < 100_000  # some 40 a name
    assert len(graph.train) + graph.duplicates["train"] == 100_000
    sample = rng.integers(0, 1000, 50)
    assert graph.entities[graph.train[0, 0]] == f"entity_{ids[0, 0]}"
    first = [tuple(row) for row in ids[:1000].tolist()]
    for at in sample.tolist():
        h, r, t = first[at]
        assert named_row(graph, at) == (f"entity_{h}", f"relation_{r % 40}", f"entity_{t}")


def named_row(graph, at):
    h, r, t = graph.train[at].tolist()
    return graph.entities[h], graph.relations[r], graph.entities[t]


@pytest.mark.parametrize(
    ("name", "text", "ignored"),
    [
        ("x.csv", ",head,relation,tail\n0,a,r,b\n1,b,r,c\n", "(no name)"),
        ("x.tsv", "tail\tnote\thead\trel\nb\t\ta\tr\nc\tmy\tb\tr\n", "note"),
        ("x.csv", 'head,relation,tail,w\na,r,b,"1,5"\nb,r,c,\n', "w"),
        ("x.csv", "subject,predicate,object,source\na,r,b,me\nb,r,c,you\n", "source"),
        ("x.csv", "label,source,relation,target,to\nx,a,r,b,y\nx,b,r,c,y\n", "label, to"),
    ],
)
@pytest.mark.parametrize("slow", [False, True])
def test_columns_beside_the_three_of_a_header_are_ignored(
    tmp_path, monkeypatch, name, text, ignored, slow
):
    if slow:
        monkeypatch.setattr("nscaching.graph.tables.fast_columns", lambda *given, **named: None)
    file = tmp_path / name
    file.write_text(text)
    assert read_triples(file) == [("a", "r", "b"), ("b", "r", "c")]
    notes = load_graph(file).notes
    assert any(f"columns of {name} were ignored: {ignored}." in note for note in notes)


def test_columns_of_which_several_could_be_meant_are_not_guessed():
    assert column_order(["subject", "rel", "tail", "source"]) is None
    assert column_order(["head", "rel", "tail", "tail"]) is None


def test_a_first_line_of_names_that_occur_nowhere_else_is_remarked_on(tmp_path):
    file = tmp_path / "x.csv"
    facts = "".join(f"a{i},knows,a{i + 1}\n" for i in range(25))
    file.write_text(f"person,verb,friend\n{facts}")
    assert load_graph(file).notes == [
        "The first line of x.csv was read as head 'person', relation 'verb', tail 'friend', and "
        "these names occur nowhere else. If they are column names, call the columns head, relation "
        "and tail, and the line is skipped; without such names the columns must be in the order "
        "head, relation, tail."
    ]
    file.write_text(f"person,knows,friend\n{facts}")
    assert not load_graph(file).notes
    file.write_text("person,verb,friend\na,knows,b\n")  # too few lines to tell
    assert not load_graph(file).notes
    file.write_text(f"head,relation,tail\nperson,verb,friend\n{facts}")  # not the first line
    assert load_graph(file).notes == [
        "The first line of x.csv (head, relation, tail) was taken as column names."
    ]


def test_the_same_first_line_in_every_file_of_a_folder_is_remarked_on_once(tmp_path):
    for at, split in enumerate(("train", "valid", "test")):
        facts = "".join(f"a{i}\tknows\ta{i + 1 + at}\n" for i in range(25))
        (tmp_path / f"{split}.txt").write_text(f"person\tverb\tfriend\n{facts}")
    notes = load_graph(tmp_path).notes
    [told] = [note for note in notes if "column names" in note]
    assert told.startswith("The first line of train.txt and of 2 more files was read as head")
    (tmp_path / "test.txt").write_text("person\tverb\tfriend\nfriend\tknows\ta1\n")
    assert not any("column names" in note for note in load_graph(tmp_path).notes)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".parquet"])
def test_a_header_without_a_relation_is_refused_not_trained_on(tmp_path, ending):
    file, facts = tmp_path / f"x{ending}", [(f"a{i}", f"a{i + 1}", "0.5") for i in range(25)]
    if ending == ".parquet":
        columns = zip(("source", "target", "weight"), zip(*facts, strict=True), strict=True)
        pq.write_table(pa.table({name: list(values) for name, values in columns}), file)
    else:
        lines = [("source", "target", "weight"), *facts]
        sign = "," if ending == ".csv" else "\t"
        file.write_text("".join(f"{sign.join(line)}\n" for line in lines))
    with pytest.raises(UserError) as raised:
        load_graph(file)
    said = str(raised.value)
    assert str(file) in said
    assert "source, target, weight" in said
    assert "has the relation cannot be told; call" in said


@pytest.mark.parametrize("header", ["subject,predicate,value", "source,kind,target", "x,rel,to"])
def test_a_header_with_two_known_names_in_their_places_is_a_header(tmp_path, header):
    (tmp_path / "x.csv").write_text(f"{header}\na,r,b\nc,r,d\n")
    graph = load_graph(tmp_path / "x.csv")
    assert named(graph) == PLAIN
    told = header.replace(",", ", ")
    assert graph.notes == [f"The first line of x.csv ({told}) was taken as column names."]


def test_single_letters_and_one_known_name_are_no_header(tmp_path):
    for line in ("s,likes,t", "source,is,a", "a,object,subject", "from,source,x"):
        file = tmp_path / "x.csv"
        file.write_text(f"{line}\na,r,b\n")
        if line == "a,object,subject":
            with pytest.raises(UserError, match="has the relation cannot be told"):
                load_graph(file)
        else:
            assert len(load_graph(file).train) == 2


def test_names_that_differ_by_spaces_alone_are_remarked_on(tmp_path):
    file = tmp_path / "x.tsv"
    file.write_text("a\t knows\t b\nb\t knows\t c\nc\t knows\t a\nd\tknows\td \n")
    assert load_graph(file).notes == [
        "4 entity names differ from another only by spaces: ' b' and 'b' are two entities "
        "here. Remove the spaces if they should be one.",
        "1 relation name differs from another only by spaces: ' knows' and 'knows' are two "
        "relations here. Remove the spaces if they should be one.",
    ]
    file.write_text("new york\tr\tnew  york\nnew york\tr\tb  c\n")
    assert load_graph(file).notes == [
        "1 entity name differs from another only by spaces: 'new  york' and 'new york' are two "
        "entities here. Remove the spaces if they should be one."
    ]
    file.write_text("a\tknows\tb\nb\tknows\t \n \u3000\tknows\tc \n")  # none could be another
    assert load_graph(file).notes == []


@pytest.mark.parametrize("slow", [False, True])
def test_spaces_around_names_with_commas_between_them_are_left_out(tmp_path, monkeypatch, slow):
    if slow:
        monkeypatch.setattr("nscaching.graph.tables.fast_columns", lambda *given, **named: None)
    file = tmp_path / "x.csv"
    file.write_text("head, relation, tail\nTNF, from cuisine, Italian\na b, r , TNF\n")
    graph = load_graph(file)
    assert named(graph) == [("TNF", "from cuisine", "Italian"), ("a b", "r", "TNF")]
    assert graph.notes == [
        "The first line of x.csv (head, relation, tail) was taken as column names.",
        "Spaces around 4 names of x.csv were left out.",
    ]
    file.write_text('"a, b",  "says ""so"", too", c\n "c", r,"d"\n')
    graph = load_graph(file)
    assert named(graph) == [("a, b", 'says "so", too', "c"), ("c", "r", "d")]
    assert graph.notes == ["Spaces around 4 names of x.csv were left out."]
    file.write_text("a,r,b\na, ,b\n")
    with pytest.raises(UserError, match=r"Line 2 of .*x.csv has an empty relation"):
        load_graph(file)


def test_a_table_of_predictions_keeps_names_as_they_are(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("head,relation,tail,probability\n a,r,'=b,0.5\nc,r, d ,0.4\n")
    read = [(" a", "r", "=b"), ("c", "r", " d ")]
    assert read_triples(file) == read
    with file.open("a") as more:
        more.write('c"d",r,e,0.3\n')  # for the reader of single lines
    assert read_triples(file) == [*read, ('c"d"', "r", "e")]


def test_a_line_shorter_than_a_wide_header_is_named(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text(",head,relation,tail\n0,a,r,b\n1,b,r\n")
    with pytest.raises(UserError, match=r"Line 3 of .*x.csv has 3 columns; the header has 4"):
        load_graph(file)


@pytest.mark.parametrize(
    ("name", "text", "seen"),
    [
        ("x.csv", "a;r;b\n", "commas, where this line has semicolons; change them to commas"),
        ("x.txt", "a r b\n", "tabs, where this line has spaces; change them to tabs"),
        ("x.csv", "a\tr\tb\n", "commas, where this line has tabs"),
        (
            "x.jsonl",
            '{"head": "a", "relation": "r", "tail": "b"}\n',
            "tabs, where this file looks like",
        ),
        (
            "x.json",
            '[\n {"head": "a"}\n]\n',
            "tabs, where this file looks like JSON; give its",
        ),
        ("x.txt", "a b\n", r"tabs\."),
    ],
)
def test_another_separator_is_named(tmp_path, name, text, seen):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=f"separated by {seen}"):
        load_graph(tmp_path / name)
