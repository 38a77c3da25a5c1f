// What the page and the tab have in common: styles, fresh data, and a place in Airflow's React.

import { h, trouble } from "./dom.js";

const EVERY_MILLISECONDS = 5_000;

/** Styles, once, from beside this module. */
export function style() {
  const href = new URL("./page.css", import.meta.url).href;
  if (!document.querySelector(`link[href="${href}"]`)) {
    document.head.append(h("link", { rel: "stylesheet", href }));
  }
}

/** Show a view and keep it fresh while somebody looks at it; returns what ends that. */
export function live(root, view) {
  let stopped = false;
  let timer = null;
  const look = async () => {
    clearTimeout(timer);
    if (stopped) return;
    let soon = false;
    if (!document.hidden) {
      try {
        soon = await view.refresh();
        root.querySelector(":scope > .ts-trouble")?.remove();
      } catch (error) {
        root.querySelector(":scope > .ts-trouble")?.remove();
        root.prepend(trouble(error.message));
      }
    }
    if (!stopped) timer = setTimeout(look, soon ? 500 : EVERY_MILLISECONDS);
  };
  const seen = () => !document.hidden && look();
  document.addEventListener("visibilitychange", seen);
  root.replaceChildren(view.element);
  look();
  return () => {
    stopped = true;
    clearTimeout(timer);
    view.end?.();
    document.removeEventListener("visibilitychange", seen);
  };
}

/** A React component around plain elements: Airflow's own React, and nothing else of it. */
export function component(mounted) {
  const { createElement, useEffect, useRef } = globalThis.React;
  return function TableServices(properties) {
    const root = useRef(null);
    const key = JSON.stringify(properties);
    useEffect(() => mounted(root.current, properties), [key]);
    return createElement("div", { ref: root, className: "ts-root" });
  };
}
