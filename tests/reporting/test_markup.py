"""HTML from untrusted text."""

import html
import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from shoal.reporting.page import Html, data_script, escaped, html_table, tag, with_code
from support.parsed_html import EVIL, Parsed

TEXT = st.text() | st.sampled_from(EVIL)


@given(TEXT)
def test_any_text_is_one_piece_of_text(text: str) -> None:
    page = Parsed(tag("p", text, title=text).encode("utf-8"))
    ((name, attributes),) = page.tags
    spaced = "".join(" " if unicodedata.category(x) == "Zs" else x for x in text)
    printable = "".join(x if x.isprintable() or x == "\n" else "\ufffd" for x in spaced)
    assert name == "p" and "".join(page.texts) == printable and attributes == {"title": printable}


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda x: st.lists(x) | st.dictionaries(TEXT, x)))
def test_any_data_comes_back_and_cannot_end_its_element(value: object) -> None:
    text = data_script("data", value)
    inner = text.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert json.loads(inner) == json.loads(json.dumps(value))
    assert not set(inner) & set("<>&\u2028\u2029")


def test_what_cannot_be_printed_is_replaced() -> None:
    assert escaped("a\u202eb\x00c\ud800d") == "a\ufffdb\ufffdc\ufffdd"
    assert escaped("10\u00a0000\u3000steps\u2028") == "10 000 steps\ufffd"


def test_html_is_kept_and_attributes_may_be_left_out() -> None:
    made = tag("a", Html("<b>x</b>"), " <i>", href=None, hidden=True, disabled=False, aria_label='"', class_="c")
    assert made == '<a hidden aria-label="&quot;" class="c"><b>x</b> &lt;i&gt;</a>'


def test_backticks_mark_code() -> None:
    assert with_code("run `a <b>` now") == "run <code>a &lt;b&gt;</code> now"
    assert with_code("one ` alone") == "one ` alone"


def test_a_table_has_heads_of_lines_and_columns() -> None:
    rows = [{"algorithm": "mappo", "score": "−1.50 [−2, −1]"}, {"algorithm": "a<b", "score": "missing", "more": "x"}]
    text = html_table(rows, "Scores & more")
    page = Parsed(text.encode())
    assert page.tables["Scores & more"] == [
        ["algorithm", "score", "more"],
        ["mappo", "−1.50 [−2, −1]", "–"],
        ["a<b", "missing", "x"],
    ]
    numbers = [attributes.get("class") for name, attributes in page.tags if name in ("th", "td")]
    assert numbers == [None, "number", None] * 3
    assert [a["scope"] for name, a in page.tags if name == "th"] == ["col"] * 3 + ["row"] * 2
    assert html.escape("Scores & more") in text


def test_a_column_of_texts_that_begin_with_numbers_is_no_column_of_numbers() -> None:
    rows = [
        {"run": "a", "n": "3", "values": "0.01: qmix"},
        {"run": "b", "n": "1 h 05 min", "values": "2e+06: the others"},
    ]
    page = Parsed(html_table([*rows, {"run": "c", "n": "1.23M (1.1M to 1.3M) †", "values": "3"}], "Flags").encode())
    assert [one.get("class") for name, one in page.tags if name == "th"][:3] == [None, "number", None]
