// File sizes over time: of each commit the smallest, the median and the largest file that it wrote.

import { bytes, clock, h } from "./dom.js";
import { laneName } from "./timeline.js";

const WIDTH = 960;
const HEIGHT = 280;
const LEFT = 72;
const BOTTOM = 28;

export function sizes(bars) {
  const commits = bars.filter((bar) => bar.file_sizes?.length);
  if (!commits.length) return h("p.ts-muted.ts-empty", {}, "No commit of the active timeline wrote a file.");
  const lanes = [...new Set(commits.map((bar) => bar.lane))].sort();
  const from = Math.min(...commits.map((bar) => bar.ended)); // bars stand in the order of requested times
  const to = Math.max(...commits.map((bar) => bar.ended), from + 1);
  const least = Math.log(Math.max(1, Math.min(...commits.map((bar) => bar.file_sizes[0]))));
  const most = Math.max(Math.log(Math.max(...commits.map((bar) => bar.file_sizes[2]))), least + Math.LN2);
  const x = (moment) => LEFT + 8 + ((moment - from) / (to - from)) * (WIDTH - LEFT - 24);
  const y = (size) => HEIGHT - BOTTOM - 8 - ((Math.log(Math.max(size, 1)) - least) / (most - least)) * (HEIGHT - BOTTOM - 24);
  const moments = [["start", from], ["middle", (from + to) / 2], ["end", to]].filter(([place]) => place !== "middle" || to - from > 2);
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.exp(least + share * (most - least)));
  return h(
    "section.ts-card",
    {},
    h("h3", {}, "Sizes of the files that each commit wrote"),
    h("p.ts-muted.ts-small", {}, "A dot is the median, its line reaches from the smallest to the largest file; the scale is logarithmic."),
    h("div.ts-legend", {}, lanes.map((lane) => h("span.ts-legend-item", {}, h(`i.ts-dot.ts-point-of.ts-lane-${lane}`), laneName(lane)))),
    h(
      "svg.ts-plot",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "file sizes over time" },
      marks.map((size) => [
        h("line.ts-tick", { x1: LEFT, x2: WIDTH - 8, y1: y(size), y2: y(size) }),
        h("text.ts-tick-name", { x: LEFT - 8, y: y(size) + 4, "text-anchor": "end" }, bytes(size)),
      ]),
      moments.map(([place, moment]) =>
        h("text.ts-tick-name", { x: x(moment), y: HEIGHT - 8, "text-anchor": place }, clock(moment)),
      ),
      commits.map((bar) => {
        const [small, median, large] = bar.file_sizes;
        const told = `${bar.operation} ${bar.instant}\nsmallest ${bytes(small)}, median ${bytes(median)}, largest ${bytes(large)}\n${clock(bar.ended)}`;
        return h(
          "g",
          {},
          h("line.ts-whisker", { x1: x(bar.ended), x2: x(bar.ended), y1: y(small), y2: y(large) }),
          h(`circle.ts-point.ts-fill-lane-${bar.lane}`, { cx: x(bar.ended), cy: y(median), r: 3 }),
          h("title", {}, told),
        );
      }),
    ),
  );
}
