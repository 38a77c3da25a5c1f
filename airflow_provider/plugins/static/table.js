// One table: its timeline, an instant in a drawer, its services, sizes, write ids and options.

import { ago, api, bytes, chip, clock, counted, duration, exact, grid, h, number, trouble, who, zone } from "./dom.js";
import { instantDrawer } from "./drawer.js";
import { sizes } from "./sizes.js";
import { lock, stopped, writer } from "./tables.js";
import { lanes, SPANS } from "./timeline.js";

const PARTS = [["timeline", "Timeline"], ["services", "Indexes and services"], ["sizes", "File sizes"], ["writes", "Write ids"], ["options", "Options"]];
const STATES = ["planned", "running", "silent", "done", "rolled back", "reverted"];
const MOST_LISTED = 100;
const INSTANTS = [["State", ""], ["Instant", ""], ["Operation", ""], ["Who", ""], ["Began", ""], ["Took", "ts-right"], ["Rows", "ts-right"], ["Files", "ts-right"]];

export function table(at, go) {
  const asked = { metastore: at.metastore ?? "table_metastore_default", table: at.table };
  let part = at.part ?? "timeline";
  let chosen = at.instant ?? null;
  let report = null;
  let bars = [];
  let now = 0;
  let span = [0, 0];
  let sought = "";
  const hidden = new Set();
  const upkeep = { value: null, error: null };
  const held = { value: null, error: null };

  const facts = h("div.ts-tiles");
  const note = h("div");
  const content = h("div");
  const drawer = instantDrawer(asked, () => select(null));
  const line = lanes({ choose: select, zoomed: (range) => ((span = range), list()) });
  const listed = h("div");
  const legend = h("div.ts-legend", {}, STATES.map(toggle));
  const search = h("input.ts-search", {
    type: "search",
    placeholder: "Filter by DAG, task, run, operation or instant",
    "aria-label": "Filter instants",
    oninput: (event) => ((sought = event.target.value.toLowerCase()), drawBars()),
  });
  const buttons = h(
    "div.ts-buttons",
    {},
    SPANS.map(([name, seconds]) => h("button.ts-button", { type: "button", onclick: () => line.span(seconds) }, name)),
    h("button.ts-button", { type: "button", "aria-label": "zoom in", onclick: () => line.zoom(0.5) }, "+"),
    h("button.ts-button", { type: "button", "aria-label": "zoom out", onclick: () => line.zoom(2) }, "−"),
  );
  const timeline = h("div", {}, h("div.ts-bar", {}, legend, search, buttons), line.element, listed);
  const tabs = PARTS.map(([name, text]) =>
    h("button.ts-tab", { type: "button", role: "tab", onclick: () => ((part = name), address(), drawPart(), more()) }, text),
  );

  function toggle(state) {
    return h(
      "button.ts-legend-item",
      { type: "button", "aria-pressed": "true", onclick: (event) => {
        hidden.has(state) ? hidden.delete(state) : hidden.add(state);
        event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(state)));
        drawBars();
      } },
      h(`i.ts-dot.ts-state-${state.replaceAll(" ", "-")}`),
      state,
    );
  }

  /** The address of what is shown, so that it can be sent to somebody and loaded again. */
  function address() {
    const query = new URLSearchParams({ ...asked, ...(part === "timeline" ? {} : { part }), ...(chosen ? { instant: chosen } : {}) });
    history.replaceState(history.state, "", `${location.pathname}?${query}`);
  }

  function select(instant) {
    chosen = instant;
    address();
    drawer.show(instant, bars.find((bar) => bar.instant === instant), now);
    drawBars();
  }

  const shown = () => bars.filter((bar) => !hidden.has(bar.state) && (!sought || JSON.stringify(bar).toLowerCase().includes(sought)));

  function drawBars() {
    line.show(shown(), now, chosen);
  }

  function list() {
    const inside = shown().filter((bar) => bar.began <= span[1] && (bar.ended ?? Infinity) >= span[0]);
    const rows = inside.slice(-MOST_LISTED).reverse().map(barRow);
    const more = inside.length > MOST_LISTED ? ` (the newest ${MOST_LISTED} of them below)` : "";
    listed.replaceChildren(
      h("p.ts-muted.ts-small", {}, `${counted(inside.length, "instant")} from ${clock(span[0])} to ${clock(span[1])}, ${zone()}${more}`),
      grid(INSTANTS, rows, "no instant in this time"),
    );
  }

  function barRow(bar) {
    const wrote = bar.rows_inserted === undefined ? "" : number(bar.rows_inserted + bar.rows_updated + bar.rows_deleted);
    const cells = [
      [h(`i.ts-dot.ts-state-${bar.state.replaceAll(" ", "-")}`), bar.state],
      h("button.ts-link.ts-mono", { type: "button", onclick: () => select(bar.instant) }, bar.instant),
      bar.operation,
      [who(bar.who, { short: true }), bar.about && h("div.ts-small.ts-muted", {}, bar.about), bar.reason && h("div.ts-small.ts-cut.ts-wrong", { title: bar.reason }, bar.reason)],
      ago(bar.began, now),
      bar.ended ? duration(bar.ended - bar.began) : duration(now - bar.began),
      wrote,
      bar.files === undefined ? "" : exact(bar.files),
    ];
    return h(`tr${bar.instant === chosen ? ".ts-chosen-row" : ""}`, {}, cells.map((cell, i) => h(`td${INSTANTS[i][1] ? `.${INSTANTS[i][1]}` : ""}`, {}, cell)));
  }

  function drawFacts() {
    const tile = (name, ...value) => h("div.ts-tile.ts-fact-tile", {}, h("span", {}, name), h("div", {}, value));
    if (!report) return;
    const it = report;
    facts.replaceChildren(
      tile("Last commit", it.last_commit ? [ago(it.last_commit.at, now), h("div.ts-small", {}, who(it.last_commit.who, { short: true }))] : "never"),
      tile("24 hours", `${number(it.day.rows_inserted + it.day.rows_updated + it.day.rows_deleted)} rows`, h("div.ts-small.ts-muted", {}, counted(it.day.commits, "commit"))),
      tile("Holds", bytes(it.bytes), h("div.ts-small.ts-muted", {}, counted(it.files, "file"))),
      tile("Writes now", it.writers.length ? it.writers.map(writer) : h("span.ts-muted", {}, "nobody")),
      tile("Lock", it.locks.length ? it.locks.map(lock) : h("span.ts-muted", {}, "free")),
      ...(it.stopped.length ? [tile("Services", it.stopped.map(stopped))] : []),
    );
  }

  function drawPart() {
    for (const [i, [name]] of PARTS.entries()) tabs[i].setAttribute("aria-selected", String(name === part));
    const whole = { timeline: () => timeline, services, sizes: () => sizes(bars), writes, options }[part];
    const made = whole();
    if (content.firstChild !== made) content.replaceChildren(made);
    if (part === "timeline") drawBars();
  }

  const waiting = (from) => (from.error ? trouble(from.error) : h("p.ts-muted.ts-empty", {}, "reading …"));

  function services() {
    const it = upkeep.value;
    const back = held.value;
    const indexes = it?.indexes.map((each) => [h("b", {}, each.index), each.progress ?? each.state, who(each.who, { short: true }), each.instant && h("button.ts-link.ts-mono", { type: "button", onclick: () => select(each.instant) }, each.instant)]);
    const plans = it?.plans.map((each) => [each.service, h("button.ts-link.ts-mono", { type: "button", onclick: () => select(each.instant) }, each.instant), each.progress]);
    const kept = it?.savepoints.map((each) => [h("span.ts-mono", {}, each.instant), each.created_by, each.comments, exact(each.files)]);
    const holders = back?.clean.held.map((each) => [each.by, exact(each.files), bytes(each.bytes)]);
    return h(
      "div.ts-columns",
      {},
      h("section.ts-card", {}, h("h3", {}, "Indexes"), it ? grid([["Index", ""], ["Progress", ""], ["Planned or built by", ""], ["Instant", ""]], indexes, "no index") : waiting(upkeep)),
      h("section.ts-card", {}, h("h3", {}, "Plans"), it ? grid([["Service", ""], ["Instant", ""], ["Progress", ""]], plans, "nothing is planned") : waiting(upkeep)),
      h(
        "section.ts-card",
        {},
        h("h3", {}, "Cleaning and archival"),
        back
          ? [
              h("p", {}, `A clean would delete ${counted(back.clean.files, "file")}, ${bytes(back.clean.bytes)}, now. An archival would archive ${counted(back.archival.instants, "instant")}.`),
              back.archival.held_by && h("p.ts-wrong", {}, `The archival is held back: ${back.archival.held_by}.`),
              grid([["Held back by", ""], ["Files", "ts-right"], ["Bytes", "ts-right"]], holders, "nobody holds a file back"),
            ]
          : waiting(held),
      ),
      h("section.ts-card", {}, h("h3", {}, "Savepoints"), it ? grid([["Commit", ""], ["Made by", ""], ["Why", ""], ["Files", "ts-right"]], kept, "no savepoint") : waiting(upkeep)),
      report?.stopped.length ? h("section.ts-card", {}, h("h3", {}, "Services that fail"), report.stopped.map(stopped)) : null,
    );
  }

  function writes() {
    const taken = bars.filter((bar) => bar.write_id).reverse().slice(0, MOST_LISTED);
    const rows = taken.map((bar) => [
      exact(bar.write_id),
      exact(bar.txn_id),
      h("button.ts-link.ts-mono", { type: "button", onclick: () => select(bar.instant) }, bar.instant),
      bar.operation,
      who(bar.who, { short: true }),
    ]);
    const ids = upkeep.value?.write_ids;
    const state = ids && [
      h("p", {}, `Readers see the write ids up to ${exact(ids.high_watermark)}`, ids.aborted.length || ids.open.length ? ", but those that are open or aborted." : "."),
      ids.open.length > 0 && grid([["Open write id", "ts-right"], ["Transaction", "ts-right"], ["Who", ""], ["Age", "ts-right"]], ids.open.map((each) => [exact(each.write_id), exact(each.txn_id), each.who?.dag ? who(each.who) : each.agent ?? each.user, duration(each.age_seconds)])),
      ids.aborted.length > 0 && h("p.ts-muted", {}, `Aborted: ${ids.aborted.join(", ")}`),
    ];
    return h("section.ts-card", {}, state, grid([["Write id", "ts-right"], ["Transaction", "ts-right"], ["Instant", ""], ["Operation", ""], ["Who", ""]], rows, "no instant of the active timeline was written in a transaction"));
  }

  /** An option's name, which a narrow column breaks at its dots and underscores. */
  const breakable = (name) => name.split(/(?<=[._])/).flatMap((part) => [part, h("wbr")]);

  function options() {
    const it = upkeep.value;
    if (!it) return waiting(upkeep);
    const rows = it.options.filter((each) => each.value !== null).map((each) => [h("span.ts-mono", {}, breakable(each.option)), h("span.ts-mono", {}, each.value), each.from === "table" ? chip("busy", "table") : chip("calm", each.from), each.topic]);
    const columns = Object.entries(it.columns).map(([name, type]) => [name, h("span.ts-mono", {}, type)]);
    const fact = (name, value) => h("div.ts-fact", {}, h("span", {}, name), h("b", {}, value || "–"));
    return h(
      "div.ts-options",
      {},
      h("section.ts-card", {}, h("h3", {}, "Table"), h("div.ts-facts", {}, fact("location", it.location), fact("type", it.type), fact("version", String(it.version)), fact("record key", it.record_key.join(", ")), fact("partitioned by", it.partition_by.join(", ")), fact("ordered by", it.ordering.join(", "))), grid([["Column", ""], ["Type", ""]], columns)),
      h("section.ts-card", {}, h("h3", {}, "Options that hold"), grid([["Option", ""], ["Value", ""], ["From", ""], ["Topic", ""]], rows)),
    );
  }

  /** What the shown part needs besides the timeline. */
  async function more() {
    if (["services", "options", "writes"].includes(part)) await ask("upkeep", upkeep);
    if (part === "services") await ask("held-back", held, "held_back");
  }

  async function ask(path, into, name = path) {
    const found = await api(path, asked);
    into.value = found[name] ?? into.value;
    into.error = found.error;
    drawPart();
  }

  const back = (event) => (event.preventDefault(), go({}));
  return {
    element: h(
      "div.ts-with-drawer",
      {},
      h(
        "div.ts-main",
        {},
        h("h1", {}, h("a.ts-link", { href: "?", onclick: back }, "Tables"), h("span.ts-muted", {}, " / "), at.table, h("span.ts-muted.ts-small.ts-of", {}, `in ${asked.metastore}`)),
        note,
        facts,
        h("div.ts-tabs", { role: "tablist" }, tabs),
        content,
      ),
      drawer.element,
    ),
    async refresh() {
      const [row, instants] = await Promise.all([api("table", asked), api("timeline", { ...asked, last: at.last ?? 1000 })]);
      [report, bars, now] = [row.report ?? report, instants.timeline ?? bars, instants.now];
      const wrong = row.error ?? instants.error;
      note.replaceChildren(...(wrong ? [trouble(wrong)] : []));
      drawFacts();
      drawPart();
      if (chosen) drawer.show(chosen, bars.find((bar) => bar.instant === chosen), now);
      await more();
      return row.state === "reading" || instants.state === "reading";
    },
    end: line.end,
  };
}
