// The timeline as lanes, one for each priority: a bar an instant, from its request to its end.

import { ahead, clock, duration, h, zone } from "./dom.js";

const LANES = ["ingestion", "backfill", "table_service", "cleaning", "undoing", "other"];
const NAMES = { table_service: "table services", undoing: "rollbacks" };
export const laneName = (lane) => NAMES[lane] ?? lane;
const BAR = 9;
const GAP = 2;
const MOST_ROWS = 8; // of a lane; what overlaps beyond that is drawn over each other
const LEFT = 112;
const AXIS = 24;
const STEPS = [
  1e-3, 1e-2, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
  1209600, 2592000,
];

export const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800], ["all", null]];

export function lanes({ choose, zoomed }) {
  let bars = [];
  let now = 0;
  let view = null; // [from, to] in seconds; null for all of it
  let chosen = null;
  const root = h("div.ts-lanes", { role: "img", "aria-label": "Timeline: scroll to zoom, drag to move" });
  let dragged = null;

  const whole = () => {
    if (!bars.length) return [now - 3600, now];
    const from = Math.min(...bars.map((bar) => bar.began));
    const to = Math.max(...bars.map((bar) => bar.ended ?? now));
    const margin = Math.max((to - from) * 0.02, 0.5);
    return [from - margin, to + margin];
  };
  const range = () => view ?? whole();

  function draw() {
    const width = Math.max(root.clientWidth, 400);
    const [from, to] = range();
    const scale = (width - LEFT - 8) / (to - from);
    const x = (moment) => LEFT + (moment - from) * scale;
    const names = [...new Set([...LANES, ...bars.map((bar) => bar.lane)])].filter((lane) => bars.some((bar) => bar.lane === lane));
    names.sort((a, b) => place(a) - place(b));
    let y = AXIS;
    const parts = [];
    for (const lane of names) {
      const [drawn, rows] = packed(bars.filter((bar) => bar.lane === lane), x, from, to, now);
      const height = rows * (BAR + GAP) + 10;
      parts.push(
        h("rect.ts-band", { x: 0, y, width, height }),
        h("text.ts-lane-name", { x: 8, y: y + Math.min(height / 2 + 4, 17) }, laneName(lane)),
        ...drawn.map(({ bar, left, wide, row }) => rect(bar, left, y + 5 + row * (BAR + GAP), wide)),
      );
      y += height + 3;
    }
    const svg = h("svg", { width, height: y + 2, viewBox: `0 0 ${width} ${y + 2}` }, axis(from, to, x, y), parts);
    if (now >= from && now <= to) svg.append(h("line.ts-now", { x1: x(now), x2: x(now), y1: AXIS - 6, y2: y }));
    root.replaceChildren(svg);
    zoomed([from, to]);
  }

  function rect(bar, left, top, wide) {
    const kind = bar.state.replaceAll(" ", "-");
    const took = bar.ended ? duration(bar.ended - bar.began) : `${duration(now - bar.began)} by now`;
    const by = bar.who?.dag ? `${bar.who.dag}.${bar.who.task}` : bar.who?.process ?? "unknown";
    return h(
      `rect.ts-instant.ts-fill-${kind}${bar.instant === chosen ? ".ts-chosen" : ""}`,
      { x: left, y: top, width: wide, height: BAR, rx: 2, "data-instant": bar.instant, onclick: () => choose(bar.instant) },
      h("title", {}, `${bar.operation} ${bar.instant}\n${bar.state}, ${took}\n${by}\n${clock(bar.began)}`),
    );
  }

  const zoom = (factor, at) => {
    const [from, to] = range();
    const [first, last] = whole();
    const span = Math.min(Math.max((to - from) * factor, 0.05), (last - first) * 1.2);
    const share = (at - from) / (to - from);
    view = [at - span * share, at - span * share + span];
    draw();
  };
  const moment = (event) => {
    const [from, to] = range();
    const box = root.getBoundingClientRect();
    return from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - 8)) * (to - from);
  };
  root.addEventListener("wheel", (event) => (event.preventDefault(), zoom(event.deltaY > 0 ? 1.25 : 0.8, moment(event))), { passive: false });
  root.addEventListener("pointerdown", (event) => (dragged = { at: event.clientX, view: range(), moved: false }));
  root.addEventListener("pointermove", (event) => {
    if (!dragged || Math.abs(event.clientX - dragged.at) < 4) return;
    if (!dragged.moved) root.setPointerCapture(event.pointerId);
    dragged.moved = true;
    const [from, to] = dragged.view;
    const by = ((dragged.at - event.clientX) / (root.clientWidth - LEFT - 8)) * (to - from);
    view = [from + by, to + by];
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) root.addEventListener(end, () => (dragged = null));
  const resized = new ResizeObserver(() => draw());
  resized.observe(root);

  return {
    element: root,
    show: (found, at, selected) => (([bars, now, chosen] = [found, at, selected]), draw()),
    span: (seconds) => ((view = seconds === null ? null : [now - seconds, now + seconds * 0.02]), draw()),
    zoom: (factor) => zoom(factor, (range()[0] + range()[1]) / 2),
    end: () => resized.disconnect(),
  };
}

/** Named lanes in their order, and numbers among them by what they weigh. */
function place(lane) {
  const at = LANES.indexOf(lane);
  if (at >= 0) return [0, 1, 2, 3, 9, 10][at];
  return 4 - Number(lane) / 100;
}

/** Bars in rows, so that none covers another one: as few rows as that takes. */
function packed(bars, x, from, to, now) {
  const ends = [];
  const drawn = [];
  for (const bar of bars) {
    const ended = bar.ended ?? now;
    if (ended < from || bar.began > to) continue;
    const left = Math.max(x(bar.began), LEFT);
    const wide = Math.max(x(Math.min(ended, to)) - left, 3);
    let row = ends.findIndex((end) => end <= left);
    if (row < 0) row = ends.length < MOST_ROWS ? ends.length : ends.indexOf(Math.min(...ends));
    ends[row] = left + wide + 1;
    drawn.push({ bar, left, wide, row });
  }
  return [drawn, Math.max(ends.length, 1)];
}

function axis(from, to, x, bottom) {
  const step = STEPS.find((each) => (to - from) / each <= 9) ?? 2592000;
  const shift = ahead(from); // so that days begin at midnight there
  const ticks = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) ticks.push(at);
  return ticks.map((at) => [
    h("line.ts-tick", { x1: x(at), x2: x(at), y1: AXIS - 6, y2: bottom }),
    h("text.ts-tick-name", { x: x(at), y: AXIS - 10, "text-anchor": "middle" }, label(at, step)),
  ]);
}

function label(at, step) {
  const date = new Date(at * 1000);
  const timeZone = zone();
  const midnight = Math.round(at + ahead(at)) % 86400 === 0;
  if (step >= 86400 || (step >= 3600 && midnight)) return date.toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone });
  const form = { timeZone, hourCycle: "h23", hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}), ...(step < 1 ? { fractionalSecondDigits: 2 } : {}) };
  return date.toLocaleTimeString(undefined, form);
}
