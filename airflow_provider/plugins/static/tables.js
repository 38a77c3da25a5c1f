// All tables: what needs a person first.

import { ago, api, bytes, chip, counted, duration, exact, grid, h, number, who } from "./dom.js";

const COLUMNS = [
  ["Table", ""],
  ["Last commit", ""],
  ["24 hours", "ts-right"],
  ["Writes now", ""],
  ["Lock", ""],
  ["Indexes", ""],
  ["Services", ""],
  ["Files", "ts-right"],
  ["Held back by", ""],
];

const FILTERS = [
  ["all", "tables", () => true, "table"],
  ["writing", "being written", (row) => row.report?.writers.some((each) => each.alive)],
  ["silent", "with silent writers", (row) => row.report?.writers.some((each) => !each.alive)],
  ["waiting", "waiting for a lock", (row) => row.report?.locks.some((each) => each.state === "waits")],
  ["stopped", "with failing services", (row) => row.report?.stopped.length],
  ["broken", "not readable", (row) => row.state === "error" || row.state === "slow"],
];
const BAD = new Set(["silent", "stopped", "broken"]);

export function tables(go) {
  let found = { tables: [], metastores: [], now: 0 };
  let filter = "all";
  let sought = "";
  const tiles = h("div.ts-tiles");
  const notes = h("div");
  const list = h("div.ts-list", {}, h("p.ts-muted.ts-empty", {}, "reading …"));
  const search = h("input.ts-search", {
    type: "search",
    placeholder: "Search tables, DAGs and tasks",
    "aria-label": "Search tables, DAGs and tasks",
    oninput: (event) => ((sought = event.target.value.toLowerCase()), draw()),
  });

  function draw() {
    tiles.replaceChildren(...FILTERS.map(tile));
    notes.replaceChildren(
      ...found.metastores
        .filter((each) => each.error)
        .map((each) => h("div.ts-trouble", { role: "alert" }, h("b", {}, `metastore ${each.metastore}: `), each.error)),
    );
    const [, , wanted] = FILTERS.find(([name]) => name === filter);
    const shown = found.tables
      .filter((row) => wanted(row) && JSON.stringify(row).toLowerCase().includes(sought))
      .sort((a, b) => urgency(b) - urgency(a) || a.table.localeCompare(b.table));
    list.replaceChildren(grid(COLUMNS, shown.map((row) => tableRow(row, found.now, go)), nothing()));
  }

  function nothing() {
    if (!found.now) return "reading …";
    if (found.tables.length) return "no table is like that now";
    return "No table is registered in a metastore that this Airflow has a connection of type table_metastore for.";
  }

  function tile([name, text, wanted, one = text]) {
    const count = found.tables.filter(wanted).length;
    const bad = BAD.has(name) && count > 0;
    return h(
      `button.ts-tile${bad ? ".ts-bad" : ""}`,
      { type: "button", "aria-pressed": String(filter === name), onclick: () => ((filter = name), draw()) },
      h("b", {}, exact(count)),
      h("span", {}, count === 1 ? one : text),
    );
  }

  return {
    element: h("div", {}, h("div.ts-bar", {}, tiles, search), notes, list),
    async refresh() {
      found = await api("tables");
      draw();
      return found.tables.some((row) => row.state === "reading") || found.metastores.some((m) => m.state === "reading");
    },
  };
}

function urgency(row) {
  if (row.state === "error" || row.state === "slow") return 4;
  if (!row.report) return 0;
  if (row.report.writers.some((each) => !each.alive)) return 3;
  if (row.report.stopped.length) return 2;
  return row.report.writers.length ? 1 : 0;
}

function tableRow(row, now, go) {
  const at = { metastore: row.metastore, table: row.table };
  const open = (event) => (event.preventDefault(), go(at));
  const name = h("a.ts-link.ts-name", { href: `?${new URLSearchParams(at)}`, onclick: open, title: row.location }, row.table);
  const named = h("td", {}, name, h("div.ts-muted.ts-small", {}, row.metastore));
  const said = row.error && h("div.ts-small.ts-wrong", {}, row.error);
  if (!row.report) {
    return h("tr", { "data-table": row.table }, named, h("td", { colspan: COLUMNS.length - 1 }, said || h("span.ts-muted", {}, "reading …")));
  }
  const it = row.report;
  const cells = [
    it.last_commit
      ? [ago(it.last_commit.at, now), h("div.ts-small", {}, who(it.last_commit.who, { short: true }))]
      : h("span.ts-muted", {}, "never"),
    [
      h("span", { title: rows(it.day) }, `${number(it.day.rows_inserted + it.day.rows_updated + it.day.rows_deleted)} rows`),
      h("div.ts-muted.ts-small", {}, counted(it.day.commits, "commit")),
    ],
    it.writers.length ? it.writers.map(writer) : quiet("nobody"),
    it.locks.length ? it.locks.map(lock) : quiet("free"),
    it.indexes.length ? it.indexes.map(index) : quiet("none"),
    it.stopped.length ? it.stopped.map(stopped) : quiet("ok"),
    [h("span", {}, exact(it.files)), h("div.ts-muted.ts-small", {}, bytes(it.bytes))],
    held(it.holders),
  ];
  named.append(...(said ? [said] : []));
  const kinds = COLUMNS.slice(1).map(([, kind]) => kind);
  return h("tr", { "data-table": row.table }, named, cells.map((cell, i) => h(`td${kinds[i] ? `.${kinds[i]}` : ""}`, {}, cell)));
}

const quiet = (text) => h("span.ts-muted.ts-small", {}, text);

const rows = (day) =>
  `${exact(day.rows_inserted)} inserted, ${exact(day.rows_updated)} updated, ${exact(day.rows_deleted)} deleted`;

export function writer(each) {
  const life = each.alive
    ? each.phase
    : `silent for ${duration(each.age_seconds)}: the next writer rolls it back`;
  return h(
    "div.ts-writer",
    { title: `${each.operation} ${each.instant}, priority ${each.priority}` },
    h(`i.ts-dot.ts-lane-${each.lane}${each.alive ? "" : ".ts-dead"}`),
    who(each.who, { short: true }),
    h(`div.ts-small.${each.alive ? "ts-muted" : "ts-wrong"}`, {}, life),
  );
}

export function lock(each) {
  if (each.state === "unknown") return h("div.ts-small.ts-wrong", {}, each.error);
  const since = each.state === "held" ? `holds it, renewed ${duration(each.age_seconds)} ago` : "waits";
  return h("div.ts-small", {}, who(each.who, { short: true }), h("div.ts-muted", {}, since));
}

export function index(each) {
  const kind = { complete: "good", building: "busy", planned: "calm" }[each.state] ?? "calm";
  const progress = each.state === "complete" ? "" : ` ${each.progress ?? each.state}`;
  return chip(kind, `${each.index}${progress}`, `${each.state}, ${exact(each.file_groups)} file groups`);
}

export function stopped(each) {
  const text = each.has_stopped ? `${each.service} has stopped` : `${each.service} failed ${each.failures}×`;
  return h("div", {}, chip(each.has_stopped ? "bad" : "warn", text, each.reason), h("div.ts-small.ts-cut", { title: each.reason }, each.reason));
}

function held(holders) {
  if (!holders.length) return quiet("nobody");
  const text = holders.length === 1 ? holders[0].by : `${holders[0].by} and ${holders.length - 1} more`;
  return h("span.ts-small", { title: holders.map((each) => `${each.by} since ${each.since}`).join("\n") }, text);
}
