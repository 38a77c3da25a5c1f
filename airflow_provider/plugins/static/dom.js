// Making elements, and saying numbers, times and people in few words.

/** An element: `h("a.link", { href, onclick }, "text", child, null)`. Text is always text, never markup. */
export function h(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = SVG.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

const SVG = new Set(["svg", "g", "rect", "line", "text", "circle", "path", "title"]);

/** A relative link below Airflow's base URL, whatever prefix a proxy gives it. */
export const url = (path) => new URL(path, document.baseURI).href;

export async function api(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null));
  const answer = await fetch(url(`table-services/api/${path}?${query}`), { credentials: "same-origin" });
  if (!answer.ok) throw new Error(ANSWERS[answer.status] ?? `the API server answers ${answer.status}`);
  return answer.json();
}

const ANSWERS = { 401: "You are not logged in any more.", 403: "You may not see plugins." };

const NUMBERS = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const EXACT = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "–" : NUMBERS.format(value));
export const exact = (value) => (value === null || value === undefined ? "–" : EXACT.format(value));

/** A number with its word: `counted(1, "commit")` is "1 commit". */
export const counted = (value, word) => `${exact(value)} ${word}${value === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) [value, power] = [value / 1024, power + 1];
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

let known = { chosen: undefined, zone: null }; // kept: each of a thousand bars asks for it

/** The zone that a person has chosen in Airflow, which keeps it there; the browser's where nobody has. */
export function zone() {
  const chosen = localStorage.getItem("timezone");
  if (known.chosen !== chosen) known = { chosen, zone: zoneOf(chosen) };
  return known.zone;
}

function zoneOf(chosen) {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: JSON.parse(chosen) ?? undefined }).resolvedOptions().timeZone;
  } catch {
    return new Intl.DateTimeFormat("en").resolvedOptions().timeZone;
  }
}

/** Seconds by which the clocks of that zone are ahead of UTC at a moment. */
export function ahead(seconds) {
  const there = new Date(seconds * 1000).toLocaleString("sv-SE", { timeZone: zone() });
  return Date.parse(`${there.replace(" ", "T")}Z`) / 1000 - Math.floor(seconds);
}

let written = { zone: null, format: null };

/** A moment in that zone, written as Airflow writes moments: 2013-12-01 05:17:00. */
export function clock(seconds) {
  const at = zone();
  if (written.zone !== at) {
    written = { zone: at, format: new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: at }) };
  }
  return written.format.format(new Date(seconds * 1000));
}

/** How long ago, with the moment itself on hover. */
export const ago = (seconds, now) =>
  h("span", { title: clock(seconds) }, now - seconds < 1 ? "now" : `${duration(now - seconds)} ago`);

/** Who it was: links to the task instance, the DAG and the run, or the process. */
export function who(named, { short = false } = {}) {
  if (!named) return h("span.ts-muted", {}, "unknown");
  if (!named.dag) return h("span.ts-mono", { title: "a process that no Airflow task runs in" }, named.process);
  const dag = `dags/${encodeURIComponent(named.dag)}`;
  const run = `${dag}/runs/${encodeURIComponent(named.run)}`;
  const mapped = named.map_index >= 0 ? `/mapped/${named.map_index}` : "";
  const task = `${run}/tasks/${encodeURIComponent(named.task)}${mapped}`;
  const index = named.map_index >= 0 ? `[${named.map_index}]` : "";
  const attempt = named.try_number > 1 ? `, try ${named.try_number}` : "";
  const said = `DAG ${named.dag}, task ${named.task}${index}, run ${named.run}, try ${named.try_number} on ${named.process}`;
  const link = (path, text) => h("a.ts-link", { href: url(path), onclick: (event) => event.stopPropagation() }, text);
  if (short) {
    return h("span.ts-who", { title: said }, link(dag, named.dag), ".", link(task, `${named.task}${index}`));
  }
  const where = [link(dag, named.dag), " · ", link(task, `${named.task}${index}`), " · ", link(run, named.run)];
  return h("span.ts-who", { title: said }, ...where, attempt);
}

export const chip = (kind, text, title = null) => h(`span.ts-chip.ts-${kind}`, { title }, text);

/** A table of cells; `columns` are [name, class]. */
export function grid(columns, rows, empty = "nothing") {
  if (!rows.length) return h("p.ts-muted.ts-empty", {}, empty);
  return h(
    "div.ts-scroll",
    {},
    h(
      "table.ts-grid",
      {},
      h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h(`th${kind ? `.${kind}` : ""}`, {}, name)))),
      h("tbody", {}, rows.map((cells) => row(columns, cells))),
    ),
  );
}

const row = (columns, cells) =>
  cells instanceof Node
    ? cells
    : h("tr", {}, cells.map((cell, at) => h(`td${columns[at][1] ? `.${columns[at][1]}` : ""}`, {}, cell)));

export const trouble = (text) => h("div.ts-trouble", { role: "alert" }, text);
