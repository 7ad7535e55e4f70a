"""bench/RESULTS.md, its plots and the README's lines are what bench/results generates, and follow from figures."""

from typing import Any

from peers import page


def _result(job: str, **seconds: float) -> dict[str, Any]:
    figures = dict.fromkeys(("client_cpu_s", "server_cpu_s", "peak_mb", "result_mb", "foreign_cores"), 0.0)
    contenders = [
        {"name": name, "median": {**figures, "wall_s": wall_s}, "runs": [figures], "digest": None, "equal": None}
        for name, wall_s in seconds.items()
    ]
    facts = {"date": "2026-11-25", "commit": "abc", "scale": 1, "runs": 3, "size": "1 row", "versions": {}}
    machine = {"cores": 2, "memory_gb": 1, "system": "Linux"}
    return {"job": job, **facts, "machine": machine, "source": None, "contenders": contenders, "absent": []}


def test_the_page_is_what_the_results_generate() -> None:
    """Nobody edits the page, a plot or a quoted line by hand; `make peers-page` writes them."""
    for path, text in page.generated(page.load(page.RESULTS), page.README.read_text()).items():
        assert path.read_text() == text, path.name


def test_the_page_opens_with_what_is_lost() -> None:
    """Losses come first, the largest first; jobs that are won are not among them."""
    results = [
        _result("lineitem", auditlake=3, adbc=2, dlt=9),
        _result("tpcb", **{"auditlake-follow": 4, "auditlake-capture": 1, "subscription": 2, "recvlogical": 1}),
        _result("insert", **{"auditlake-follow": 4, "dlt-replication": 5}),
    ]
    text = page.generated(results, "")[page.PAGE]
    losses = text[text.index("## What auditlake loses at") : text.index("## First copy of TPC-H's lineitem")]
    assert "PostgreSQL's subscription: 2.00 s (**2.00 ×**) | `pg_recvlogical` to nothing: 1.00 s (**4.00 ×**)" in losses
    assert losses.index("**2.00 ×**") < losses.index("**1.50 ×**")
    assert "One transaction of many rows" not in losses
    assert "capture" not in losses


def test_a_verdict_names_the_figures() -> None:
    """Those of auditlake, of whoever wins or is next, and of the best that keeps nothing."""
    readme = "<!-- quoted from bench/RESULTS.md -->\n- old\n\nmore"
    behind = page.generated([_result("lineitem", auditlake=3, adbc=2, copy=1)], readme)[page.README]
    ahead = page.generated([_result("lineitem", auditlake=2, adbc=3)], readme)[page.README]
    assert "ADBC → delta-rs wins with 2.00 s; **auditlake** has 3.00 s, 1.50 × behind; `COPY`" in behind
    assert "which keeps nothing, has 1.00 s." in behind
    assert "**auditlake** wins with 2.00 s; next is ADBC → delta-rs with 3.00 s." in ahead
    assert "old" not in behind
    assert behind.endswith("\n\nmore")


def test_growth_shows_every_size() -> None:
    """A row of times for each size below the table of the largest, and a line for each contender."""
    small, large = _result("growth-rows", **{"auditlake-follow": 1}), _result("growth-rows", **{"auditlake-follow": 7})
    points = [{"x": x, "contenders": result["contenders"]} for x, result in ((1000, small), (100_000, large))]
    texts = page.generated([{**large, "points": points}], "")
    assert "| 1,000 | 1.00 s, 0 MB |\n| 100,000 | 7.00 s, 0 MB |" in texts[page.PAGE]
    assert texts[page.RESULTS / "growth-rows.svg"].count("<polyline") == 1


def test_growth_shows_who_took_no_part_in_the_largest_size() -> None:
    """A contender that is left out of it has its figures of the smaller sizes, and a line."""
    small, large = (
        _result("growth-rows", **{"auditlake-follow": 1, "debezium": 3}),
        _result("growth-rows", **{"auditlake-follow": 7}),
    )
    points = [{"x": x, "contenders": result["contenders"]} for x, result in ((1000, small), (100_000, large))]
    texts = page.generated([{**large, "points": points}], "")
    assert "| 1,000 | 1.00 s, 0 MB | 3.00 s, 0 MB |\n| 100,000 | 7.00 s, 0 MB | – |" in texts[page.PAGE]
    assert "Left out of the largest size, for their time: Debezium, events thrown away.\n" in texts[page.PAGE]
    assert texts[page.RESULTS / "growth-rows.svg"].count("<polyline") == 2


def test_a_run_beside_other_work_says_so() -> None:
    """Wall time of a busy machine is not to be trusted."""
    quiet, busy = _result("lineitem", auditlake=3), _result("lineitem", auditlake=3)
    busy["contenders"][0]["runs"] = [{**busy["contenders"][0]["runs"][0], "foreign_cores": 1.9}]
    assert "The machine was busy" not in page.generated([quiet], "")[page.PAGE]
    texts = page.generated([busy], "<!-- quoted from bench/RESULTS.md -->\n")
    assert "up to 1.9 cores did other work" in texts[page.PAGE]
    assert texts[page.README].endswith("(1.9 of 2 cores did other work.)\n")
