// The page in Airflow's navigation. Airflow imports this module and shows what it leaves as AirflowPlugin.

import { h } from "./dom.js";
import { component, live, style } from "./live.js";
import { log } from "./log.js";
import { table } from "./table.js";
import { tables } from "./tables.js";

/** Where a person is: in the address, so that it can be sent to somebody. */
const place = () => Object.fromEntries(new URLSearchParams(location.search));

export function go(parameters) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  history.pushState(history.state, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  globalThis.dispatchEvent(new Event("ts-place"));
}

function mount(root) {
  style();
  const body = h("div.ts-body");
  const tab = (name, view) =>
    h("a.ts-tab", { href: "?", "data-view": view, onclick: (event) => (event.preventDefault(), go({ view })) }, name);
  const tabs = [tab("Tables", ""), tab("Notification log", "log")];
  root.replaceChildren(h("nav.ts-tabs", { "aria-label": "Table services" }, tabs), body);
  let end = () => {};
  let shown = null;
  const show = () => {
    const at = place();
    const key = [at.view, at.metastore, at.table].join("|");
    for (const each of tabs) {
      const current = (at.view ?? "") === each.dataset.view;
      current ? each.setAttribute("aria-current", "page") : each.removeAttribute("aria-current");
    }
    if (key === shown) return;
    shown = key;
    end();
    const view = at.table ? table(at, go) : at.view === "log" ? log() : tables(go);
    end = live(body, view);
  };
  const events = ["popstate", "ts-place"];
  for (const event of events) globalThis.addEventListener(event, show);
  show();
  return () => {
    end();
    for (const event of events) globalThis.removeEventListener(event, show);
  };
}

globalThis.AirflowPlugin = component(mount);
