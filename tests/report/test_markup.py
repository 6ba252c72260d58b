"""What is not HTML already is escaped, wherever it stands."""

from nscaching.report.markup import Column, Html, bar, breakable, command, join, table, tag, text

from .reading import Reading


def test_text_and_attributes_are_escaped_and_html_is_not():
    assert text("<b>&\"'") == "&lt;b&gt;&amp;&quot;&#x27;"
    assert text(Html("<b>")) == "<b>"
    made = tag("p", "<i>", tag("b", "&"), title='"><x', data_some_thing=1, class_=None)
    assert made == '<p title="&quot;&gt;&lt;x" data-some-thing="1">&lt;i&gt;<b>&amp;</b></p>'
    assert isinstance(made, Html)
    assert join(["<", tag("b")], "&") == "&lt;&amp;<b></b>"


def test_a_name_may_break_after_marks_and_stays_escaped():
    assert breakable("_member_of") == "_<wbr>member_<wbr>of"
    assert breakable("a/b.c_") == "a/<wbr>b.<wbr>c_"
    page = Reading(f"<p>{breakable('</p><script>/x_y</script>')}</p>")
    assert page.words == "</p><script>/x_y</script>"
    assert page.count("script") == 0


def test_a_table_has_heads_a_caption_and_every_cell():
    columns = [Column("name", "text"), Column("n"), Column("m", minor=True)]
    page = Reading(table("A <caption>", columns, [["a&b", 1, 2], ["c", 3, 4]], chosen=1))
    assert page.words == "A <caption>namenma&b12c34"
    heads = [attributes for name, attributes in page.tags if name == "th"]
    assert [head["scope"] for head in heads] == ["col"] * 3 + ["row"] * 2
    cells = [attributes["class"] for name, attributes in page.tags if name == "td"]
    assert cells == ["number", "number minor"] * 2
    rows = [attributes.get("class") for name, attributes in page.tags if name == "tr"]
    assert rows == [None, None, "chosen"]


def test_a_command_reads_as_it_was_given_and_a_bar_stays_in_its_frame():
    line = "nscaching train 'a  b' --dim 4"
    assert line in "".join(Reading(command(line)).text)
    assert "--share: 1.000" in bar(1.7, "1.7")
    assert "--share: 0.000" in bar(-0.1, "x")
