"""The report: one page with every claim and figure that needs nothing beside itself, and how a browser shows it."""

import base64
import io
import re
import shutil
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import browser as browsers
import pytest
from PIL import Image, PngImagePlugin

from highway_rl.cli.app import main
from highway_rl.experiments import base, claims, report_page
from highway_rl.experiments import report as made
from highway_rl.experiments.scores import id_table
from highway_rl.records.rows import write_rows
from highway_rl.runs import checkout

RESULTS = Path(__file__).parents[2] / "results"
VOID = {"meta", "link", "img"}
SIGNS = {verdict: sign for verdict, (_, sign) in report_page.VERDICTS.items()}


class Read(HTMLParser):
    """The elements of a page with their attributes and texts; that each is closed in its turn is checked on the way."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.within, self.texts = [], [], []
        self.feed(text)
        assert not self.within

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.texts.append("")
        if tag not in VOID:
            self.within.append((tag, len(self.elements) - 1))

    def handle_endtag(self, tag):
        assert self.within.pop()[0] == tag

    def handle_data(self, data):
        for _, number in self.within:
            self.texts[number] += data

    def attributes(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]

    def said(self, *tags):
        return [text.strip() for (tag, _), text in zip(self.elements, self.texts, strict=True) if tag in tags]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of the stored rows."""
    return made.report(RESULTS, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def read(page):
    return Read(page.read_text(encoding="utf-8"))


def few(folder, *names):
    """A folder with the stored rows of a few experiments."""
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(RESULTS / f"{name}.csv", folder)
    return folder


def line(claim):
    return f"{claim['id']}{claim['statement']}{claim['value']}{SIGNS[claim['verdict']]} {claim['verdict']}"


@pytest.mark.long
def test_every_claim_has_its_verdict(read):
    lines = read.said("tr")
    for number, statement in claims.STATEMENTS.items():
        assert any(text.startswith(f"{number}{statement}") for text in lines), number
    for name in ("example-mdp", "operators", "toy-delayed", "late-tasks"):
        for claim in claims.check(RESULTS, base.find(name)):
            assert line(claim) in lines
            assert any(text.startswith(f"{claim['id']}") and text.endswith(claim["verdict"]) for text in lines)


@pytest.mark.long
def test_every_experiment_says_how_it_was_measured(read):
    sections = read.said("section")[1:]
    assert read.said("h2")[1:] == [
        f"{e.name} " + ("not in the paper" if e.paper == "none" else f"the paper's {e.paper}")
        for e in base.experiments().values()
    ]
    for said, one in zip(sections, base.experiments().values(), strict=True):
        assert f"highway-rl run {one.name} --scale paper" in said
        assert one.summary[1:] in said
        if one.stages is None and one.path(RESULTS).exists():
            _, facts = base.read_rows(one.path(RESULTS))
            for known in (
                facts["commit"],
                facts["device"],
                facts["jax"],
                facts["date"][:10],
                f"{facts['cells']:,} cells",
            ):
                assert known in said


@pytest.mark.long
def test_every_figure_is_in_the_page(read, tmp_path):
    images = read.attributes("img")
    for image in images:
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as shown:
            assert shown.size == (int(image["width"]), int(image["height"]))
        assert len(image["alt"]) > 40
    assert len({image["alt"] for image in images}) == len(images)
    one = base.find("late-tasks")
    (drawn,) = one.plot(one.stored(RESULTS), tmp_path)
    expected = base64.b64encode(made.picture(drawn).data).decode()
    assert any(image["src"].endswith(expected) for image in images)
    assert len({image["src"] for image in images}) == len(images) >= 9


@pytest.mark.long
def test_the_page_needs_nothing_beside_itself(page, read):
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size <= made.LIMIT
    assert {tag for tag, _ in read.elements}.isdisjoint(
        {"script", "iframe", "object", "embed", "base", "form", "video"}
    )
    places = [a[name] for _, a in read.elements for name in ("src", "href", "srcset", "action") if name in a]
    assert {p for p in places if not p.startswith(("#", "data:"))} == {report_page.PAPER}
    assert "@import" not in text
    assert "url(" not in report_page.STYLE
    (policy,) = (a["content"] for a in read.attributes("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


@pytest.mark.long
def test_the_page_can_be_read_by_ear_and_by_keyboard(read):
    assert read.attributes("html") == [{"lang": "en"}]
    assert read.said("title") == read.said("h1")
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    assert {a["href"][1:] for a in read.attributes("a") if a["href"].startswith("#")} <= set(ids)
    assert all("scope" in a for a in read.attributes("th"))
    assert len(read.said("caption")) == len(read.attributes("table"))
    boxes = [a for a in read.attributes("div") if a.get("class") == "box"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in boxes)


def test_texts_are_escaped():
    nasty = "<script>alert(1)</script> & \"quotes' <b>"
    picture = made.Picture(nasty, b"", 10, 10)
    table = base.Table(nasty, (nasty, "b"), [(nasty, nasty)])
    claim = {"id": 1, "statement": nasty, "value": nasty, "verdict": base.FAILS}
    origin = made.Origin(nasty, {"commit": nasty})
    section = made.Section(nasty, nasty, nasty, nasty, nasty, [claim], [picture], [table] * 2, [origin])
    page = report_page.page([claim], [section, section._replace(name="other", origins=[])])
    read = Read(page)
    assert {tag for tag, _ in read.elements}.isdisjoint({"script", "b"})
    assert nasty in read.said("td")
    assert page.count("✗") == 4, "counted, in the overview, in both sections"


def test_long_tables_are_folded():
    short, long = (base.Table("title", ("a",), [("x",)] * n) for n in (report_page.LONG - 1, report_page.LONG))
    assert "<details>" not in report_page.table(short)
    assert "<summary>title (12 rows)</summary>" in report_page.table(long)


def test_runs_that_no_table_names_are_listed_with_their_ids():
    def row(name, seed, algo="dqn"):
        return {"task": "minatar/a", "env": "", "algo": algo, "k": 1, "steps": 9_000, "seed": seed, "id": name}

    rows = [row("aa", 1), row("bb", 0), row("cc", 0, "retrace"), row("dd", 2)]
    shown = base.Table("scores", ("each",), [("3.0 (dd)",)])
    found = id_table(rows, [shown])
    assert found.rows == [
        ("a", "–", "dqn", "1", "9,000", "0 (bb), 1 (aa)"),
        ("a", "–", "retrace", "1", "9,000", "0 (cc)"),
    ]
    assert not id_table([row("dd", 2)], [shown]).rows


@pytest.mark.long
def test_every_training_run_has_its_id_on_the_page(read):
    sections = dict(zip(base.experiments(), read.said("section")[1:], strict=True))
    for one in base.experiments().values():
        if one.stages is not None:
            for row in one.used(one.stored(RESULTS)):
                assert f"({row['id']})" in sections[one.name]
            assert f"highway-rl run {one.name} --cell ID" in sections[one.name]
            for line in checkout.commands("COMMIT", "ID", one.name):
                assert line in sections[one.name]


@pytest.mark.long
def test_words_that_the_page_uses_are_explained_at_its_head(read):
    (head,) = read.said("header")
    for word in ("k", "at ε", "the screen", "all of training"):
        assert word in report_page.WORDS
        assert report_page.WORDS[word] in head


def test_a_page_that_would_be_too_large_gets_smaller_figures(tmp_path, monkeypatch):
    stored = few(tmp_path / "rows", "late-tasks")
    whole = made.report(stored, tmp_path / "whole.html")
    (image,) = Read(whole.read_text(encoding="utf-8")).attributes("img")
    monkeypatch.setattr(made, "LIMIT", whole.stat().st_size - len(image["src"]) // 2)
    cut = made.report(stored, tmp_path / "cut.html")
    assert cut.stat().st_size <= made.LIMIT
    (image,) = Read(cut.read_text(encoding="utf-8")).attributes("img")
    assert image["width"] == "1768", "it takes the same place"


def test_what_is_not_run_says_how_to_run_it(tmp_path):
    read = Read(made.report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not read.attributes("img")
    assert all(text.endswith(base.NOT_RUN) for text in read.said("tr") if text[0].isdigit())
    for said, one in zip(read.said("section")[1:], base.experiments().values(), strict=True):
        assert f"not yet run Its rows are made with highway-rl run {one.name} --scale paper" in said


def test_training_runs_of_others_are_no_runs_of_mine(tmp_path):
    """All training runs lie in one folder."""
    (tmp_path / "deep").mkdir()
    assert made.section(base.find("main"), tmp_path).claims[0]["verdict"] == base.NOT_RUN


def test_distinct_origins_are_counted():
    shared = {"code": "c", "device": "gpu", "jax": "1", "seed": 0}
    rows = [
        {**shared, "commit": "a", "date": "2026-01-01T10", "seconds": 60.0},
        {**shared, "commit": "b", "date": "2026-01-02T10", "seconds": 90.0},
        {**shared, "commit": "b", "date": "2026-01-02T10", "seconds": 90.0},
        {**shared, "commit": "b", "date": "2026-01-03T10", "seconds": 3600.0},
    ]
    first, second = made.of_runs(rows)
    assert (first.amount, first.facts["commit"], first.facts["date"]) == ("3 runs", "b", "2026-01-02 to 2026-01-03")
    assert (first.facts["took"], second.facts["took"]) == ("1.0 h", "1 min")
    assert (second.amount, second.facts["versions"]) == ("1 run", "JAX 1")
    facts = {"cells": 10, "commit": "a", "device": "big", "the rest": {"cells": 3, "device": "small"}}
    parts = made.of_file([{}] * 50, facts)
    assert [(p.amount, p.facts["device"]) for p in parts] == [("7 cells", "big"), ("3 cells: the rest", "small")]
    assert [p.amount for p in made.of_file([{}] * 50, {"cells": 10})] == ["50 rows"]
    assert [p.amount for p in made.of_file([{}], {"cells": 1})] == ["1 row"]


@pytest.mark.parametrize(
    ("parts", "amounts"),
    [
        ({"later": {"cells": 12}, "one more": {"cells": 24}}, ["12 cells", "12 cells: later", "24 cells: one more"]),
        ({"a": {"cells": 20}, "b": {"cells": 1}}, ["3 cells", "20 cells: a", "1 cell: b"]),
        ({"a": {"cells": 20}, "b": {"cells": 20}}, ["24 cells", "20 cells: a", "20 cells: b"]),
    ],
)
def test_parts_that_share_cells_are_counted_each_by_itself(parts, amounts):
    """Some rows of all cells, made later, are not taken off those that others made."""
    assert [p.amount for p in made.of_file([{}] * 50, {"cells": 24, **parts})] == amounts


@pytest.mark.parametrize("name", [e.name for e in base.experiments().values() if e.stages is None])
def test_of_no_file_less_than_one_cell_was_made(name):
    rows, facts = base.read_rows(base.find(name).path(RESULTS))
    amounts = [p.amount for p in made.of_file(rows, facts)]
    assert all(re.fullmatch(r"1 (cell|row)(: .*)?|([2-9]|\d[\d,]+) (cells|rows)(: .*)?", amount) for amount in amounts)


def test_what_a_commit_cannot_make_again_is_said_in_its_line():
    old = {"commit": "490de94", "date": "2026-11-16T01:00", "id": "a"}
    rows = [old, old | {"commit": "5fdd713+changes", "date": "2026-11-18T03:46"}, old | {"date": "2026-11-18T03:46"}]
    rows[2]["commit"] = "89afb2f"
    told = {o.facts["commit"]: o.facts["to make them again"] for o in made.of_runs(rows)}
    assert "has no --cell yet" in told["490de94"]
    assert "was not committed" in told["5fdd713+changes"]
    assert told["89afb2f"] == ""


def test_a_run_cut_short_is_said_to_be(tmp_path):
    rows, facts = base.read_rows(RESULTS / "late-tasks.csv")
    write_rows(tmp_path / "late-tasks.csv", rows, {**facts, "finished": 5, "scale": "quick"})
    found = made.section(base.find("late-tasks"), tmp_path)
    assert (found.size, found.scale) == ("5 of 7 cells, 280 rows, 10 seeds (100–109)", "quick")


def test_the_title_of_a_figure_is_its_own(tmp_path):
    """Where the PNG has one; else its name."""
    facts = PngImagePlugin.PngInfo()
    facts.add_text("Title", "Better & faster")
    Image.new("RGB", (8, 4)).save(tmp_path / "with.png", pnginfo=facts)
    Image.new("RGB", (8, 4)).save(tmp_path / "some-figure.png")
    assert made.picture(tmp_path / "with.png")[::2] == ("Better & faster", 8)
    assert made.picture(tmp_path / "some-figure.png").title == "Some figure"


@pytest.mark.long
def test_the_command(tmp_path, capsys):
    """It draws in two processes, and the page is the same as that of one."""
    stored = few(tmp_path / "rows", "example-mdp", "late-tasks")
    main(["report", "--results", str(stored), "--out", str(tmp_path / "two.html")])
    size = (tmp_path / "two.html").stat().st_size
    assert capsys.readouterr().out == f"page: {tmp_path / 'two.html'} ({size / 1e6:.1f} MB)\n"
    steps = []
    made.report(stored, tmp_path / "one.html", lambda done, of: steps.append((done, of)))
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert steps == [(i + 1, len(base.experiments())) for i in range(len(base.experiments()))]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.html", "rows", "two.html"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--results", "nowhere"], "nowhere is not there: give --results a folder of stored runs, such as results"),
        (["--out", "report.pdf"], "--out report.pdf: give a name that ends in .html"),
        (
            ["--out", "no/where/report.html"],
            "--out no/where/report.html: no/where is not there: make that folder first",
        ),
        (["--results", "broken"], "is not a stored run"),
        (["--results", "old"], "lacks rows or columns of this version"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(args, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    for name, text in (("results", None), ("broken", "not a run\n"), ("old", '# {"scale": "paper"}\nvalue\n2\n')):
        (tmp_path / name).mkdir()
        if text:
            (tmp_path / name / "example-mdp.csv").write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["report", *args])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not there: give a folder of stored runs"):
        made.report(tmp_path / "nowhere", tmp_path / "report.html")


@pytest.mark.full
def test_the_page_is_made_in_twenty_seconds(tmp_path):
    begun = time.perf_counter()
    main(["report", "--results", str(RESULTS), "--out", str(tmp_path / "report.html")])
    assert time.perf_counter() - begun <= 20


# In a real browser.


@pytest.fixture(scope="module")
def browser():
    if browsers.chromium() is None:
        pytest.skip("no Chromium on this machine: `make browser` installs it on Debian")
    with browsers.Browser() as one:
        yield one


PAIRS = """(() => {
  const under = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const chosen = "h1, h2, h3, p, a, td, th, code, caption, summary, figcaption, dt, dd, small, .verdict, footer p";
  const found = [...document.querySelectorAll(chosen)];
  return found.map((e) => [getComputedStyle(e).color, under(e), e.className || e.tagName]);
})()"""
"""Every kind of text with its colour and the colour it stands on."""


def contrast(one, other):
    """As WCAG counts it, from 1 to 21."""

    def light(colour):
        parts = [int(x) / 255 for x in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.long
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_no_screen_is_too_narrow(browser, page, width):
    browser.open(page, width=width)
    assert browser.value("document.documentElement.scrollWidth") <= width + 1
    assert browser.value("document.body.scrollWidth") <= width + 1
    assert browser.value("innerWidth") == width, "a phone does not zoom out to fit something in"
    edges = """[...document.querySelectorAll("h1, h2, h3, p, li, .verdict, .box, .claims td, dd, footer")]
        .map(e => Math.round(e.getBoundingClientRect().right))"""
    assert max(browser.value(edges)) <= width
    narrow = browser.value("[...document.images].map(i => i.getBoundingClientRect().width / i.naturalWidth)")
    assert min(narrow) > 0.5, "figures are wide enough to read"


@pytest.mark.long
def test_it_opens_without_network_and_without_complaints(browser, page):
    browser.open(page, width=1280)
    assert [r for r in browser.requests if not r.startswith("data:")] == [page.resolve().as_uri()]
    assert browser.errors == []
    assert browser.value("document.compatMode") == "CSS1Compat"
    assert min(browser.value("Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))")) > 0


@pytest.mark.long
def test_light_and_dark_can_both_be_read(browser, page):
    grounds = []
    for dark in (False, True):
        browser.open(page, width=1280, dark=dark)
        pairs = browser.value(PAIRS)
        assert len(pairs) > 100
        for colour, ground, what in pairs:
            assert contrast(colour, ground) >= 4.5, (what, colour, ground, dark)
        grounds.append(browser.value("getComputedStyle(document.body).backgroundColor"))
        cards = browser.value("[...document.images].map(i => getComputedStyle(i.parentElement).backgroundColor)")
        assert set(cards) == {"rgb(255, 255, 255)"}, "figures lie on white"
    assert grounds[0] == "rgb(255, 255, 255)"
    assert contrast(*grounds) > 10


@pytest.mark.long
def test_the_keyboard_reaches_everything(browser, page):
    browser.open(page, width=360)
    left = "document.querySelector('.skip').getBoundingClientRect().left"
    assert browser.value(left) < 0
    browser.value("document.querySelector('.skip').focus()")
    assert browser.value(left) >= 0
    browser.value("document.querySelector('figure .box').focus()")
    assert browser.value("document.activeElement.className") == "box"


@pytest.mark.long
def test_paper_shows_it_all(browser, page, tmp_path):
    browser.open(page, width=1280)
    pdf = base64.b64decode(browser.ask("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
