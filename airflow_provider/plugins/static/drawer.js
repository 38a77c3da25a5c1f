// One instant: what it planned and did, with whom it met, and who did it.

import { api, bytes, clock, duration, exact, grid, h, who } from "./dom.js";

const PARTITIONS = [["Partition", ""], ["Files", "ts-right"], ["Bytes", "ts-right"], ["Inserted", "ts-right"], ["Updated", "ts-right"], ["Deleted", "ts-right"]];

export function instantDrawer(asked, close) {
  const body = h("div.ts-drawer-body");
  const title = h("h2.ts-mono");
  const element = h(
    "aside.ts-drawer",
    { hidden: true, "aria-label": "Instant" },
    h("header", {}, title, h("button.ts-button", { type: "button", "aria-label": "close", onclick: close }, "×")),
    body,
  );
  const escape = (event) => event.key === "Escape" && !element.hidden && close();
  element.ownerDocument.addEventListener("keydown", escape);
  let shown = null;
  let asking = 0;

  async function show(instant, bar, now) {
    element.hidden = !instant;
    if (!instant) return void (shown = null);
    const state = `${instant} ${bar?.state} ${bar?.phase} ${bar?.progress}`;
    if (state === shown) return;
    const other = !shown?.startsWith(instant);
    shown = state;
    title.textContent = instant;
    if (other) body.replaceChildren(...summary(bar, now));
    const turn = ++asking;
    try {
      const found = await api("instant", { ...asked, instant });
      if (turn === asking) body.replaceChildren(...summary(bar ?? found.instant, now), ...details(found));
    } catch (error) {
      if (turn === asking) body.append(h("p.ts-wrong", {}, error.message));
    }
  }
  return { element, show };
}

const fact = (name, value) => (value || value === 0) && h("div.ts-fact", {}, h("span", {}, name), h("b", {}, value));

function summary(bar, now) {
  if (!bar) return [];
  const kind = bar.state.replaceAll(" ", "-");
  return [
    h(
      "div.ts-facts",
      {},
      fact("state", [h(`i.ts-dot.ts-state-${kind}`), bar.state]),
      fact("operation", `${bar.operation}, ${bar.action}`),
      fact("who", who(bar.who)),
      fact("process", bar.who?.dag && h("span.ts-mono", {}, bar.who.process)),
      fact("priority", bar.priority === null ? null : `${bar.lane?.replace("_", " ")} (${bar.priority})`),
      bar.began && fact("requested", clock(bar.began)),
      bar.ended && fact(bar.state === "done" ? "completed" : "ended", `${clock(bar.ended)}, after ${duration(bar.ended - bar.began)}`),
      !bar.ended && bar.began && fact("open for", duration(now - bar.began)),
      fact("progress", bar.progress ?? (bar.state === "running" ? bar.phase : null)),
      bar.state === "silent" && fact("silent for", `${duration(bar.silent_seconds)}; the next writer rolls it back`),
      fact("what it is", bar.about),
      fact("undoes", bar.undoes),
      fact("undone by", bar.undone_by && [h("span.ts-mono", {}, bar.undone_by), " ", who(bar.ender, { short: true })]),
      fact("write id", bar.write_id && `${bar.write_id}, transaction ${bar.txn_id}`),
    ),
    bar.reason && h("p.ts-reason", {}, bar.reason),
  ].filter(Boolean);
}

function details(found) {
  const it = found.instant;
  if (!it) return [h("p.ts-wrong", {}, found.error ?? "reading …")];
  const rebased = (it.rebased_onto ?? []).map((other) => h("div.ts-small", {}, `${other.operation} ${other.instant} by `, who(other.who)));
  const above = new Set(["priority", "txn_id", "write_id"]);
  const said = Object.entries(it.metadata?.extraMetadata ?? {}).filter(([name]) => !above.has(name)).map(([name, value]) => [name, h("span.ts-mono", {}, value)]);
  const total = (name) => it.partitions.reduce((sum, each) => sum + each[name], 0);
  const rows = it.partitions.map((each) => [each.partition || "(the table)", exact(each.files), bytes(each.bytes), exact(each.inserted), exact(each.updated), exact(each.deleted)]);
  if (rows.length > 1) rows.push([h("b", {}, "all"), exact(total("files")), bytes(total("bytes")), exact(total("inserted")), exact(total("updated")), exact(total("deleted"))]);
  return [
    rebased.length && h("section", {}, h("h3", {}, "Merged again, after a conflict with"), rebased),
    rows.length && h("section", {}, h("h3", {}, "Wrote"), grid(PARTITIONS, rows), it.more_partitions > 0 && h("p.ts-muted", {}, `and ${exact(it.more_partitions)} more partitions`)),
    it.metadata?.indexes && h("section", {}, h("h3", {}, "Indexes"), grid([["Index", ""], ["Size", ""]], Object.entries(it.metadata.indexes))),
    said.length && h("section", {}, h("h3", {}, "Extra metadata of the commit"), grid([["", ""], ["", ""]], said)),
    raw("Plan", it.plan),
    raw("Metadata", it.metadata),
  ].filter(Boolean);
}

const raw = (name, value) =>
  value && Object.keys(value).length
    ? h("details", {}, h("summary", {}, name), h("pre.ts-mono", {}, JSON.stringify(value, null, 2)))
    : null;
