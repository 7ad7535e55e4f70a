// The page's script: the timeline (slider, zoom, keys), pages that follow the moment, the undo script, SQL, live changes.
// Every page works without it, except SQL; it only asks this server, and puts no value into a page but by textContent or
// as HTML that the server has escaped.
"use strict";

const main = document.getElementById("main");
const section = document.getElementById("timeline");

function announce(text) {
  const place = document.getElementById("announcement");
  if (place) place.textContent = text;
}

// --- The page as of another moment -----------------------------------------------------------------------------------

const PARAMETER = { "/transaction": "transaction", "/compare": "after" };

function pageUrl(lsn) {
  const url = new URL(location.href);
  url.hash = "";
  url.searchParams.delete("at");
  url.searchParams.delete("before_lsn");
  if (main.dataset.path === "/rows") url.searchParams.delete("offset");
  const name = PARAMETER[main.dataset.path];
  if (name) url.searchParams.set(name, lsn);
  url.searchParams.set("at", lsn);
  return url;
}

// Moves of the slider that follow each other closely are one step of Back.
const ONE_MOVE_MS = 1000;
let moved = -Infinity;

function remember(url, push) {
  const isNew = push && performance.now() - moved > ONE_MOVE_MS;
  if (push) moved = performance.now();
  history[isNew ? "pushState" : "replaceState"](null, "", url);
}

let running = null;

async function show(url, { push = false } = {}) {
  if (running) running.abort();
  const mine = new AbortController();
  running = mine;
  const busy = setTimeout(() => main.setAttribute("aria-busy", "true"), 250);
  try {
    const asked = new URL(url);
    asked.searchParams.set("_fragment", "1");
    const response = await fetch(asked, { signal: mine.signal });
    if (response.status === 401 || response.redirected) { location.reload(); return; }
    const html = await response.text();
    const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.id : null;
    if (!main.querySelector("[data-fixed]") || response.status !== 200) main.innerHTML = html;
    if (focused) document.getElementById(focused)?.focus();
    const moment = response.headers.get("x-moment");
    if (moment && response.status === 200) setMoment(JSON.parse(moment));
    remember(url, push);
    fixAddress();
    ready();
  } catch (error) {
    if (error.name !== "AbortError") announce("The server cannot be reached.");
  } finally {
    clearTimeout(busy);
    if (running === mine) { running = null; main.removeAttribute("aria-busy"); }
  }
}

// A time or -2h in the address would not mean the same to everyone who gets the link, nor later.
function fixAddress() {
  if (!section || section.dataset.now === "true" || main.querySelector("[role=alert]")) return;
  const url = new URL(location.href);
  const before = main.querySelector("[data-before]")?.dataset.before;
  for (const [name, lsn] of [["at", section.dataset.lsn], ["after", section.dataset.lsn], ["before", before]]) {
    const asked = url.searchParams.get(name);
    if (lsn && asked && asked !== lsn) url.searchParams.set(name, lsn);
  }
  history.replaceState(null, "", url);
}

function setMoment(at) {
  if (!section) return;
  Object.assign(section.dataset, { lsn: at.lsn, time: at.time || "", commit: at.commit, commits: at.commits, now: at.is_now });
  writeTime(document.getElementById("moment-time"), at.time);
  const lsn = document.getElementById("moment-lsn");
  lsn.textContent = at.lsn;
  lsn.href = `/transaction?${new URLSearchParams({ transaction: at.lsn, at: at.lsn })}`;
  document.getElementById("moment-commit").textContent = `commit ${at.commit.toLocaleString("en")} of ${at.commits.toLocaleString("en")}`;
  document.getElementById("moment-now").hidden = !at.is_now;
  for (const link of document.querySelectorAll("[data-keeps-moment]")) {
    const url = new URL(link.href);
    if (at.is_now) url.searchParams.delete("at"); else url.searchParams.set("at", at.lsn);
    link.href = url;
  }
  const slider = document.getElementById("slider");
  const text = `${at.time || "before the first commit"}, ${at.lsn}, commit ${at.commit} of ${at.commits}`;
  slider.setAttribute("aria-valuenow", at.commit);
  slider.setAttribute("aria-valuemax", at.commits);
  slider.setAttribute("aria-valuetext", text);
  announce(`As of ${text}`);
  timeline?.reach(toMicros(at.time));
}

function writeTime(place, iso) {
  place.textContent = "";
  if (!iso) { place.textContent = "before the first commit"; return; }
  const [day, clock] = iso.replace("Z", "").split("T");
  const [whole, fraction] = clock.split(".");
  const time = document.createElement("time");
  time.dateTime = iso;
  time.append(span("day", day), ` ${whole}`);
  if (fraction) time.append(span("fraction", `.${fraction}`));
  time.append(span("zone", " UTC"));
  place.append(time);
}

function span(name, text) {
  const made = document.createElement("span");
  made.className = name;
  made.textContent = text;
  return made;
}

function toMicros(iso) {
  if (!iso) return null;
  const [whole, fraction = ""] = iso.replace("Z", "").split(".");
  return Date.parse(`${whole}Z`) * 1000 + Number(fraction.padEnd(6, "0").slice(0, 6));
}

// A statement that is edited stays when a moment is entered.
function keepEdited() {
  const go = section.querySelector(".go");
  const shown = (event, at) => {
    if (!main.querySelector("[data-fixed]")) return;
    event.preventDefault();
    const url = new URL(location.href);
    if (at) url.searchParams.set("at", at); else url.searchParams.delete("at");
    show(url, { push: true });
  };
  go.addEventListener("submit", (event) => shown(event, document.getElementById("at").value.trim()));
  document.getElementById("to-now").addEventListener("click", (event) => shown(event, ""));
}

// --- The timeline ----------------------------------------------------------------------------------------------------

class Timeline {
  constructor() {
    this.slider = document.getElementById("slider");
    this.handle = document.getElementById("handle");
    this.hint = document.getElementById("hint");
    this.shown = JSON.parse(section.dataset.timeline);
    this.at = toMicros(section.dataset.time);
    this.zooms = 0;
    this.draw();
    this.listen();
  }

  draw() {
    const { bars } = this.shown;
    const most = Math.max(1, ...bars.map((bar) => bar.commits));
    const width = 1000 / bars.length;
    const path = bars.map((bar, place) => {
      if (!bar.commits) return "";
      const height = Math.max(6, Math.sqrt(bar.commits / most) * 100);
      return `M${(place * width).toFixed(1)} 100v-${height.toFixed(1)}h${(width * 0.8).toFixed(1)}V100z`;
    });
    document.getElementById("bars").setAttribute("d", path.join(""));
    document.getElementById("unknown").setAttribute("d", this.unknown());
    this.ticks();
    this.place(this.at);
  }

  // The stretches in which changes are unknown; as formatting.unknown_path draws them.
  unknown() {
    const { from_us: from, to_us: to, unknown } = this.shown;
    return unknown.map((each) => {
      const first = Math.max(from, each.from_us ?? from);
      const last = Math.min(to, each.to_us ?? to);
      if (first > last) return "";
      const scale = 1000 / Math.max(1, to - from);
      const x = (first - from) * scale;
      return `M${x.toFixed(1)} 0h${Math.max(2, (last - first) * scale).toFixed(1)}V100H${x.toFixed(1)}z`;
    }).join("");
  }

  share(micros) {
    return (micros - this.shown.from_us) / Math.max(1, this.shown.to_us - this.shown.from_us);
  }

  place(micros) {
    this.at = micros;
    const share = micros === null ? 0 : this.share(micros);
    this.handle.hidden = share < -0.001 || share > 1.001;
    this.handle.style.left = `${Math.min(1, Math.max(0, share)) * 100}%`;
  }

  // A commit after the last known one lengthens the chart, if that shows the end.
  reach(micros) {
    this.place(micros);
    const { last_us: last, from_us: from, to_us: to } = this.shown;
    if (micros === null || last === null || micros <= last) return;
    this.shown.last_us = micros;
    if (to > last) this.load(from, micros + 1);
  }

  ticks() {
    const place = document.getElementById("ticks");
    place.textContent = "";
    const { from_us: from, to_us: to } = this.shown;
    const count = Math.max(2, Math.min(8, Math.floor(this.slider.clientWidth / 160)));
    for (let number = 0; number <= count; number++) {
      const made = span("", label(from + ((to - from) * number) / count, to - from));
      made.style.left = `${(100 * number) / count}%`;
      place.append(made);
    }
  }

  bar(event) {
    const box = this.slider.getBoundingClientRect();
    const share = Math.min(0.9999, Math.max(0, (event.clientX - box.left) / box.width));
    return this.shown.bars[Math.floor(share * this.shown.bars.length)];
  }

  listen() {
    let dragging = false;
    this.slider.addEventListener("pointerdown", (event) => {
      dragging = true;
      this.slider.setPointerCapture(event.pointerId);
      this.moveTo(event);
    });
    this.slider.addEventListener("pointermove", (event) => {
      const bar = this.bar(event);
      this.hint.hidden = false;
      this.hint.textContent = `${label(bar.from_us, this.shown.to_us - this.shown.from_us)} · ${bar.commits.toLocaleString("en")} ${bar.commits === 1 ? "commit" : "commits"}`;
      const box = this.slider.getBoundingClientRect();
      const half = this.hint.offsetWidth / 2;
      this.hint.style.left = `${Math.min(box.width - half, Math.max(half, event.clientX - box.left))}px`;
      if (dragging) this.moveTo(event);
    });
    for (const name of ["pointerup", "pointercancel"]) this.slider.addEventListener(name, () => { dragging = false; });
    this.slider.addEventListener("pointerleave", () => { this.hint.hidden = true; });
    this.slider.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.6 : 1 / 0.6, this.bar(event).from_us);
    }, { passive: false });
    this.slider.addEventListener("keydown", (event) => this.key(event));
    for (const button of section.querySelectorAll("[data-step]")) {
      button.addEventListener("click", () => this.step(Number(button.dataset.step)));
    }
    for (const button of section.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.zoomBy(button.dataset.zoom));
    }
    let width = this.slider.clientWidth;
    addEventListener("resize", () => {
      if (width !== this.slider.clientWidth) { width = this.slider.clientWidth; this.ticks(); }
    });
  }

  moveTo(event) {
    const bar = this.bar(event);
    const lsn = bar.lsn || this.shown.bars.find((each) => each.lsn)?.lsn;
    this.place(bar.to_us);
    if (lsn && lsn !== section.dataset.lsn) show(pageUrl(lsn), { push: true });
  }

  key(event) {
    const far = Math.max(10, Math.round(this.shown.commits / 20));
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far };
    const zooms = { "+": "in", "=": "in", "-": "out", 0: "all" };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) this.step(steps[event.key] * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home") this.step(-(2 ** 39));
    else if (event.key === "End") this.step(2 ** 39);
    else if (event.key in zooms) this.zoomBy(zooms[event.key]);
    else return;
    event.preventDefault();
  }

  async step(by) {
    const response = await fetch(`/api/v1/step?${new URLSearchParams({ at: section.dataset.lsn, by })}`);
    if (!response.ok) return;
    const commit = await response.json();
    section.dataset.lsn = commit.lsn;
    this.at = commit.time_us;
    if (this.share(commit.time_us) < 0 || this.share(commit.time_us) > 1) await this.zoom(1, commit.time_us, 0.5);
    this.place(commit.time_us);
    await show(pageUrl(commit.lsn), { push: true });
  }

  zoomBy(way) {
    const middle = this.at ?? (this.shown.from_us + this.shown.to_us) / 2;
    if (way === "all") return this.load(this.shown.first_us, this.shown.last_us + 1);
    return this.zoom(way === "in" ? 0.4 : 2.5, middle, 0.5);
  }

  // `around` keeps its place in the chart, or gets the given share of it.
  zoom(factor, around, at = null) {
    const { first_us: first, last_us: last, from_us: from, to_us: to } = this.shown;
    const length = Math.max(1000, Math.min((to - from) * factor, last + 1 - first));
    const share = Math.min(1, Math.max(0, (around - from) / (to - from)));
    let begin = around - length * (at ?? share);
    begin = Math.max(first, Math.min(begin, last + 1 - length));
    return this.load(begin, begin + length);
  }

  async load(from, to) {
    if (this.shown.first_us === null) return;
    const mine = ++this.zooms;
    const bars = Math.max(60, Math.min(600, Math.round(this.slider.clientWidth / 4)));
    const asked = { from_us: Math.floor(from), to_us: Math.max(Math.ceil(to), Math.floor(from) + 1), bars, table: section.dataset.table };
    const response = await fetch(`/api/v1/timeline?${new URLSearchParams(asked)}`);
    if (!response.ok || mine !== this.zooms) return;
    this.shown = await response.json();
    this.draw();
  }
}

function label(micros, length) {
  const iso = new Date(micros / 1000).toISOString();
  const day = 86400e6;
  if (length > 3 * day) return iso.slice(0, 10);
  if (length > day / 2) return `${iso.slice(5, 10)} ${iso.slice(11, 16)}`;
  return length > 10e6 ? iso.slice(11, 19) : iso.slice(11, 23);
}

// --- Newer commits ---------------------------------------------------------------------------------------------------

// A page of the latest state says how many commits are newer than it, and shows them if asked once, or always.
const NEWER_MS = 5000;
const LAST = 2 ** 40 - 1;
const MOMENTS_OF_THEIR_OWN = ["/transaction", "/compare"];

async function lookForNewer() {
  const isLatest = section.dataset.now === "true" && !MOMENTS_OF_THEIR_OWN.includes(main.dataset.path);
  const button = document.getElementById("newer");
  document.getElementById("following").hidden = !isLatest;
  if (!isLatest) { button.hidden = true; return; }
  if (document.hidden || running) return;
  const response = await fetch(`/api/v1/step?${new URLSearchParams({ number: LAST })}`).catch(() => null);
  if (!response?.ok || section.dataset.now !== "true") return;
  const newer = (await response.json()).number - Number(section.dataset.commits);
  button.hidden = newer <= 0;
  if (newer <= 0) return;
  if (document.getElementById("follow").checked) { await showNewer(); return; }
  button.textContent = `${newer.toLocaleString("en")} newer ${newer === 1 ? "commit" : "commits"}: show`;
}

async function showNewer() {
  document.getElementById("newer").hidden = true;
  await show(location.href);
}

function watchForNewer() {
  document.getElementById("newer").addEventListener("click", showNewer);
  document.getElementById("follow").addEventListener("change", lookForNewer);
  setInterval(lookForNewer, NEWER_MS);
  lookForNewer();
}

// --- Parts of pages --------------------------------------------------------------------------------------------------

function ready() {
  const column = document.getElementById("fc");
  const ops = document.getElementById("fo");
  if (column && ops) {
    const all = [...ops.options];
    const fit = () => {
      const allowed = (column.selectedOptions[0]?.dataset.ops || "").split(" ");
      const chosen = ops.value;
      ops.replaceChildren(...all.filter((option) => !column.value || allowed.includes(option.value)));
      if ([...ops.options].some((option) => option.value === chosen)) ops.value = chosen;
    };
    column.addEventListener("change", fit);
    fit();
  }
  document.querySelector("[data-undo]")?.addEventListener("click", (event) => undo(event.currentTarget));
  if (document.getElementById("sql")) readySql();
  readyLive();
}

async function undo(button) {
  const place = document.getElementById("script");
  button.disabled = true;
  const response = await fetch(button.dataset.undo);
  const text = await response.text();
  place.textContent = response.ok ? text : JSON.parse(text).error;
  place.hidden = false;
  button.disabled = false;
  const copy = document.getElementById("copy");
  copy.hidden = !response.ok;
  copy.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(place);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    announce("The script is copied.");
  };
}

// --- SQL -------------------------------------------------------------------------------------------------------------

let sqlReady = null;
let ran = false;

function readySql() {
  const form = document.getElementById("sql");
  if (sqlReady === form) { if (ran) runSql(); return; }
  sqlReady = form;
  const area = document.getElementById("statement");
  form.addEventListener("submit", (event) => { event.preventDefault(); runSql(); });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); runSql(); }
    else completionKey(event, area);
  });
  document.getElementById("cancel").addEventListener("click", () => asking?.abort());
  readyKept(area);
  area.addEventListener("input", () => { paint(area); suggest(area); });
  area.addEventListener("scroll", () => followPainted(area));
  paint(area);
  area.addEventListener("blur", () => setTimeout(() => { if (document.activeElement !== area) hideCompletions(); }, 150));
  if (area.value) runSql();
}

// The statement in colours lies below the text that is edited, which is transparent then.
const MOST_PAINTED = 20000;
const WORDS = new Set(("all and any array as asc at between by case cast contained cross cube current_date current_timestamp desc distinct else end " +
  "escape except exists false fetch filter first following for from full group grouping having ilike in inner intersect interval is join " +
  "last lateral left like limit natural not null nulls of offset on or order outer over partition preceding range recursive right rollup " +
  "rows select sets similar system_time then time timestamp to true unbounded union unnest using values when where window with within zone").split(" "));
const LEXEME = /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*(?:'|$))|("(?:[^"]|"")*(?:"|$)|`[^`]*(?:`|$))|(\b\d[\d.]*(?:[eE][+-]?\d+)?\b)|([\p{L}_][\p{L}\p{N}_$]*)/gu;
const KINDS = ["comment", "text", null, "digits"];

function paint(area) {
  const below = document.getElementById("painted");
  const text = area.value;
  const parts = [];
  area.parentElement.classList.toggle("painted", text.length <= MOST_PAINTED);
  if (text.length > MOST_PAINTED) { below.replaceChildren(); return; }
  let end = 0;
  for (const found of text.matchAll(LEXEME)) {
    const kind = found[5] === undefined ? KINDS[found.slice(1).findIndex((each) => each !== undefined)] : WORDS.has(found[5].toLowerCase()) && "word";
    if (!kind) continue;
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = found[0];
    parts.push(text.slice(end, found.index), span);
    end = found.index + found[0].length;
  }
  below.replaceChildren(...parts, text.slice(end), "\n");
  followPainted(area);
}

function followPainted(area) {
  document.getElementById("painted").scrollTop = area.scrollTop;
}

let asking = null;

async function runSql() {
  const area = document.getElementById("statement");
  const state = document.getElementById("sql-state");
  const place = document.getElementById("sql-answer");
  const link = document.getElementById("sql-link");
  const cancel = document.getElementById("cancel");
  if (!area.value.trim()) return;
  ran = true;
  if (asking) asking.abort();
  const mine = new AbortController();
  asking = mine;
  state.textContent = "running…";
  link.hidden = true;
  cancel.hidden = false;
  document.getElementById("chart").hidden = true;
  place.setAttribute("aria-busy", "true"); // it shows the answer of another statement
  const dialect = document.getElementById("dialect").value;
  const slow = setTimeout(() => { if (dialect === "spark") state.textContent = "running… The first statement for Spark starts it."; }, 2000);
  try {
    const body = { sql: area.value, dialect, at: section.dataset.now === "true" ? null : section.dataset.lsn };
    const response = await fetch("/sql/answer", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal: mine.signal,
    });
    const answer = await response.json();
    if (!response.ok) {
      state.textContent = "";
      place.replaceChildren(problemBox(answer));
      return;
    }
    const shown = `${answer.rows.toLocaleString("en")}${answer.more ? "+" : ""} ${answer.rows === 1 ? "row" : "rows"}`;
    state.textContent = `${shown} · ${(answer.seconds * 1000).toFixed(0)} ms · ${answer.engine} · as of ${answer.at.lsn}`;
    place.innerHTML = answer.html;
    readyChart(place);
    const url = new URL(location.href);
    url.searchParams.set("sql", area.value);
    url.searchParams.set("dialect", dialect);
    history.replaceState(null, "", url);
    url.searchParams.set("at", answer.at.lsn);
    link.href = url;
    link.hidden = false;
    keepStatement("", area.value, dialect);
  } catch (error) {
    if (asking !== mine) return;
    state.textContent = error.name === "AbortError" ? "cancelled" : "The server cannot be reached.";
    place.replaceChildren();
  } finally {
    clearTimeout(slow);
    if (asking === mine) { asking = null; cancel.hidden = true; place.removeAttribute("aria-busy"); }
  }
}

// --- A chart of two columns of an answer -----------------------------------------------------------------------------

const MOST_DRAWN = 200;

function readyChart(place) {
  const chart = document.getElementById("chart");
  const heads = [...place.querySelectorAll("thead th")];
  const rows = [...place.querySelectorAll("tbody tr")].filter((row) => row.cells.length === heads.length);
  const names = heads.map((head) => head.querySelector("bdi").textContent);
  const numeric = [...heads.keys()].filter((n) => heads[n].classList.contains("right"));
  chart.hidden = rows.length < 2 || heads.length < 2 || !numeric.length;
  if (chart.hidden) return;
  const of = document.getElementById("chart-of");
  const by = document.getElementById("chart-by");
  of.replaceChildren(...numeric.map((n) => new Option(names[n], n)));
  of.value = numeric.at(-1);
  by.replaceChildren(...names.map((name, n) => new Option(name, n)));
  by.value = names.findIndex((_, n) => n !== numeric.at(-1));
  const draw = () => drawChart(rows, Number(of.value), Number(by.value));
  of.onchange = draw;
  by.onchange = draw;
  draw();
}

function drawChart(rows, of, by) {
  const known = rows.map((row) => ({ by: row.cells[by].textContent.trim(), of: row.cells[of].textContent.trim() }))
    .filter((each) => each.of !== "" && Number.isFinite(Number(each.of)));
  const drawn = known.slice(0, MOST_DRAWN);
  const values = drawn.map((each) => Number(each.of));
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const y = (value) => 196 - ((value - low) / Math.max(1e-300, high - low)) * 192;
  const width = 1000 / Math.max(1, drawn.length);
  const svg = document.getElementById("chart-drawn");
  svg.replaceChildren(...drawn.map((each, place) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const x = (place * width).toFixed(2);
    bar.setAttribute("d", `M${x} ${y(0).toFixed(1)}V${y(values[place]).toFixed(1)}h${(width * 0.8).toFixed(2)}V${y(0).toFixed(1)}z`);
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = `${each.by}: ${each.of}`;
    bar.append(title);
    return bar;
  }));
  const left = rows.length - known.length;
  const notes = [`${low.toLocaleString("en")} to ${high.toLocaleString("en")}`];
  if (left) notes.push(`${left} ${left === 1 ? "row has" : "rows have"} no number`);
  if (known.length > drawn.length) notes.push(`the first ${MOST_DRAWN} rows`);
  document.getElementById("chart-note").textContent = notes.join("; ");
  document.getElementById("chart-first").textContent = drawn[0]?.by ?? "";
  document.getElementById("chart-last").textContent = drawn.at(-1)?.by ?? "";
  svg.setAttribute("aria-label", `Chart of ${drawn.length} rows, ${notes[0]}`);
}

function problemBox(problem) {
  const box = document.createElement("section");
  box.className = "problem";
  box.append(...[problem.error, problem.hint].filter(Boolean).map((text) => {
    const made = document.createElement("p");
    made.textContent = text;
    return made;
  }));
  return box;
}

// Statements that were answered, the newest first, and those that were saved under a name; they stay in this browser.
const KEPT = "auditlake.statements";
const MOST_KEPT = 30;

function keptStatements() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) || "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each?.sql === "string" && typeof each?.name === "string") : [];
  } catch {
    return [];
  }
}

function keepStatement(name, sql, dialect) {
  const others = keptStatements().filter((each) => (name ? each.name !== name : each.name || each.sql !== sql));
  const named = others.filter((each) => each.name);
  const unnamed = others.filter((each) => !each.name);
  (name ? named : unnamed).unshift({ name, sql, dialect });
  storeStatements([...named, ...unnamed.slice(0, MOST_KEPT)]);
}

function storeStatements(statements) {
  try { localStorage.setItem(KEPT, JSON.stringify(statements)); } catch { announce("This browser keeps no statements."); }
  listStatements();
}

function listStatements() {
  const list = document.getElementById("kept");
  const first = list.options[0];
  list.replaceChildren(first, ...keptStatements().map((each, place) => {
    const text = each.sql.replace(/\s+/g, " ");
    const shown = each.name || (text.length > 70 ? `${text.slice(0, 70)}…` : text);
    return new Option(shown, place);
  }));
  document.getElementById("forget").hidden = true;
}

function readyKept(area) {
  const list = document.getElementById("kept");
  const name = document.getElementById("keep-name");
  const forget = document.getElementById("forget");
  list.addEventListener("change", () => {
    const chosen = keptStatements()[Number(list.value)];
    forget.hidden = list.value === "";
    if (list.value === "" || !chosen) return;
    area.value = chosen.sql;
    paint(area);
    if (chosen.dialect) document.getElementById("dialect").value = chosen.dialect;
    name.value = chosen.name;
    area.focus();
  });
  document.getElementById("keep").addEventListener("click", () => {
    if (!name.value.trim() || !area.value.trim()) { announce("Write a statement, and a name for it."); name.focus(); return; }
    keepStatement(name.value.trim(), area.value, document.getElementById("dialect").value);
    announce(`Saved as ${name.value.trim()}.`);
  });
  forget.addEventListener("click", () => {
    const chosen = Number(list.value);
    storeStatements(keptStatements().filter((_, place) => place !== chosen));
  });
  listStatements();
}

let completions = [];
let chosen = -1;
let suggesting = 0;

async function suggest(area) {
  const mine = ++suggesting;
  const text = area.value.slice(0, area.selectionStart);
  if (!/[\w.]$/.test(text)) { hideCompletions(); return; }
  await new Promise((resolve) => setTimeout(resolve, 80));
  if (mine !== suggesting) return;
  const response = await fetch("/api/v1/complete", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ sql: text, rest: area.value.slice(area.selectionStart) }),
  });
  if (!response.ok || mine !== suggesting) return;
  completions = (await response.json()).completions;
  chosen = completions.length ? 0 : -1;
  const list = document.getElementById("completions");
  list.replaceChildren(...completions.map((each, place) => {
    const item = document.createElement("li");
    item.id = `completion-${place}`;
    item.role = "option";
    item.textContent = each.text;
    item.addEventListener("pointerdown", (event) => { event.preventDefault(); chosen = place; complete(area); });
    return item;
  }));
  list.hidden = !completions.length;
  const line = text.split("\n").length;
  list.style.top = `${Math.min(line, 6) * 1.4 + 1.2}rem`;
  markChosen(area);
}

function markChosen(area) {
  const items = document.getElementById("completions").children;
  [...items].forEach((item, place) => item.setAttribute("aria-selected", place === chosen));
  items[chosen]?.scrollIntoView({ block: "nearest" });
  if (chosen >= 0) area.setAttribute("aria-activedescendant", `completion-${chosen}`);
  else area.removeAttribute("aria-activedescendant");
}

function hideCompletions() {
  completions = [];
  chosen = -1;
  const list = document.getElementById("completions");
  if (list) list.hidden = true;
}

function complete(area) {
  const each = completions[chosen];
  if (!each) return;
  const end = area.selectionStart;
  area.setRangeText(each.text, end - each.replaces, end, "end");
  paint(area);
  hideCompletions();
}

function completionKey(event, area) {
  if (!completions.length) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + completions.length) % completions.length;
    markChosen(area);
  } else if (event.key === "Tab") complete(area);
  else if (event.key === "Escape") hideCompletions();
  else return;
  event.preventDefault();
}

// --- Live changes ----------------------------------------------------------------------------------------------------

let source = null;

function endLive() {
  source.close();
  source = null;
  document.getElementById("live")?.setAttribute("aria-pressed", "false");
}

function readyLive() {
  const button = document.getElementById("live");
  if (!button || !window.EventSource || section.dataset.now !== "true") return;
  button.hidden = false;
  button.addEventListener("click", () => {
    if (source) { endLive(); return; }
    source = new EventSource("/api/v1/changes");
    button.setAttribute("aria-pressed", "true");
    // Refused, such as a cursor whose changes have expired: a browser does not reconnect.
    source.addEventListener("error", () => { if (source?.readyState === EventSource.CLOSED) endLive(); });
    let later = null;
    source.addEventListener("transaction", () => {
      later ??= setTimeout(() => { later = null; show(location.href); }, 400);
    });
  });
  if (source) button.setAttribute("aria-pressed", "true");
}

const shownPath = location.pathname;
const timeline = section ? new Timeline() : null;
if (timeline) { fixAddress(); keepEdited(); watchForNewer(); }
addEventListener("popstate", () => {
  moved = -Infinity;
  if (location.pathname === shownPath && !main.querySelector("[data-fixed]")) show(location.href);
  else location.reload();
});
if (document.querySelector("[data-refresh]")) setInterval(() => { if (!document.hidden) show(location.href); }, 10000);
ready();
