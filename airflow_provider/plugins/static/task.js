// The tab at a task instance: what this task writes, whom it waits for, and whom it lost to.

import { api, bytes, clock, duration, exact, grid, h, number, url, who } from "./dom.js";
import { component, live, style } from "./live.js";
import { lock, writer } from "./tables.js";

function task({ dagId, runId, taskId, mapIndex }) {
  const body = h("div.ts-body", {}, h("p.ts-muted.ts-empty", {}, "reading …"));
  const asked = { dag_id: dagId, run_id: runId, task_id: taskId, map_index: Number(mapIndex ?? -1) };

  function draw(found) {
    if (!found.table) {
      const why = found.error ?? "This task works on no table, or it has not begun.";
      return [h("p.ts-muted.ts-empty", {}, why)];
    }
    const page = url(`plugin/table-services?${new URLSearchParams({ metastore: found.metastore, table: found.table })}`);
    const title = h("h2", {}, h("a.ts-link", { href: page }, found.table));
    if (!found.report) return [title, h("p.ts-wrong", {}, found.error ?? "reading …")];
    const { instants, waits_for: waits, lock: held } = found.report;
    const blocked = [
      waits.length > 0 && h("section.ts-card", {}, h("h3", {}, "It gives way to, or waits for"), waits.map(writer)),
      held.length > 0 && h("section.ts-card", {}, h("h3", {}, "The table's lock"), held.map(lock)),
    ];
    const told = written([...instants].reverse(), page, found.now);
    const none = h("p.ts-muted", {}, "No instant of this task is on the active timeline of the table.");
    return [title, ...blocked.filter(Boolean), ...(told.length ? told : [none])];
  }

  return {
    element: body,
    async refresh() {
      const found = await api("task", asked);
      body.replaceChildren(...draw(found));
      return found.state === "reading";
    },
  };
}

const EARLIER = [["State", ""], ["Instant", ""], ["Operation", ""], ["Try", "ts-right"], ["Began", ""], ["Took", "ts-right"], ["Rows", "ts-right"], ["Files", "ts-right"]];

/** The newest instant in full, and a line for each earlier one, of which a backfill has many. */
function written([newest, ...earlier], page, now) {
  if (!newest) return [];
  const rows = earlier.map((each) => [
    [h(`i.ts-dot.ts-state-${each.state.replaceAll(" ", "-")}`), each.state],
    h("a.ts-link.ts-mono", { href: `${page}&instant=${each.instant}` }, each.instant),
    [each.operation, each.about && h("div.ts-small.ts-muted", {}, each.about), each.reason && h("div.ts-small.ts-wrong", {}, each.reason)],
    each.who?.try_number && exact(each.who.try_number),
    clock(each.began),
    duration((each.ended ?? now) - each.began),
    each.rows_inserted === undefined ? "" : number(each.rows_inserted + each.rows_updated + each.rows_deleted),
    each.files === undefined ? "" : exact(each.files),
  ]);
  return [instant(newest, page, now), rows.length > 0 && h("section.ts-card", {}, h("h3", {}, "Earlier instants of this task"), grid(EARLIER, rows))].filter(Boolean);
}

function instant(it, page, now) {
  const fact = (name, value) => value && h("div.ts-fact", {}, h("span", {}, name), h("b", {}, value));
  const rows = it.rows_inserted !== undefined;
  return h(
    "section.ts-card",
    {},
    h("h3", {}, h(`i.ts-dot.ts-state-${it.state.replaceAll(" ", "-")}`), `${it.operation} `, h("a.ts-link.ts-mono", { href: `${page}&instant=${it.instant}` }, it.instant)),
    h(
      "div.ts-facts",
      {},
      fact("state", it.state),
      fact("phase", it.state === "running" ? it.phase : null),
      fact("try", it.who?.try_number && String(it.who.try_number)),
      fact("began", clock(it.began)),
      fact("took", it.ended ? duration(it.ended - it.began) : `${duration(now - it.began)} by now`),
      rows && fact("rows", `${number(it.rows_inserted)} inserted, ${number(it.rows_updated)} updated, ${number(it.rows_deleted)} deleted`),
      rows && fact("files", `${exact(it.files)}, ${bytes(it.bytes)}`),
      fact("write id", it.write_id && String(it.write_id)),
    ),
    it.about && h("p.ts-muted", {}, it.about),
    it.reason && h("p.ts-wrong", {}, it.reason),
    (it.rebased_onto ?? []).length > 0 &&
      h("div", {}, h("span.ts-muted", {}, "merged again on "), it.rebased_onto.map((other) => h("div", {}, `${other.operation} ${other.instant} by `, who(other.who)))),
  );
}

globalThis.AirflowPlugin = component((root, properties) => {
  style();
  return live(root, task(properties));
});
