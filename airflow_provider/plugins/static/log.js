// The notification logs: who follows them, who holds retention back, and which transactions are open.

import { api, bytes, chip, duration, exact, grid, h, trouble, who } from "./dom.js";

const CONSUMERS = [["Consumer", ""], ["Last event", "ts-right"], ["Behind", "ts-right"], ["Rate", "ts-right"], ["Silent for", "ts-right"], ["Reads from memory", "ts-right"], ["", ""]];
const TXNS = [["Transaction", ""], ["Who", ""], ["Age", "ts-right"], ["Silent for", "ts-right"], ["Writes", ""]];

const REPLICATIONS = [["Replication", ""], ["From", ""], ["Position", "ts-right"], ["Events behind", "ts-right"], ["Transactions", "ts-right"], ["Behind for", "ts-right"], ["Copied", "ts-right"], ["Left", "ts-right"], ["Replicator", ""], ["Last error", ""]];

const LONG_SILENCE = 600; // seconds, after which a sensor takes a consumer for gone

function replications(each) {
  if (!each.replications.length && !each.replications_error) return null;
  const rows = each.replications.map((one) => [
    [h("b", {}, one.policy), " ", chip(one.phase === "following" ? "calm" : "warn", one.phase)],
    h("span", { title: one.source }, one.source),
    exact(one.event_id),
    exact(one.events),
    exact(one.transactions),
    one.seconds ? duration(one.seconds) : exact(one.seconds),
    bytes(one.bytes_copied),
    bytes(one.bytes_left),
    one.replicator ?? "–",
    one.last_error && h("span.ts-wrong", {}, one.last_error),
  ]);
  return [
    h("h3", {}, "Replications into this metastore"),
    each.replications_error && trouble(each.replications_error),
    grid(REPLICATIONS, rows, "reading …"),
  ];
}

// How much of what a replica was asked for its memory has answered, without the database.
function reads(hits, misses) {
  const all = hits + misses;
  const title = `${exact(hits)} answered from memory, ${exact(misses)} by the database, since the replica was opened`;
  return h("span", { title }, all ? `${((100 * hits) / all).toFixed(1)} % of ${exact(all)}` : "none yet");
}

function newest(head, rate) {
  return `The newest event is ${exact(head)}${rate === null ? "" : `; new ones come at ${rate}`}.`;
}

export function log() {
  const body = h("div", {}, h("p.ts-muted.ts-empty", {}, "reading …"));
  const seen = new Map(); // where each consumer and each head was when this page first looked

  function rate(key, event, now) {
    if (!seen.has(key) || seen.get(key).event > event) seen.set(key, { event, now });
    const first = seen.get(key);
    return now - first.now < 3 ? null : `${((event - first.event) / (now - first.now)).toFixed(1)}/s`;
  }

  function section(each, now) {
    const it = each.log;
    const title = h("h2", {}, each.metastore);
    if (!it) return h("section.ts-card", {}, title, each.error ? trouble(each.error) : h("p.ts-muted", {}, "reading …"));
    const consumers = it.consumers.map((one) => [
      h("b", {}, one.consumer),
      exact(one.event_id),
      h(`span${one.behind && one.holds_back_retention ? ".ts-wrong" : ""}`, {}, exact(one.behind)),
      rate(`${each.metastore} ${one.consumer}`, one.event_id, now) ?? "…",
      h(`span${one.behind && one.silent_seconds > LONG_SILENCE ? ".ts-wrong" : ""}`, {}, duration(one.silent_seconds)),
      one.hits === null ? "–" : reads(one.hits, one.misses),
      [
        one.holds_back_retention && chip("warn", "holds retention back", "old events stay until it has read them"),
        !one.live && chip("bad", "gone", `no advance for more than ${duration(one.expiry_seconds)}`),
      ],
    ]);
    const txns = it.transactions.map((one) => [
      exact(one.txn_id),
      one.who?.dag ? who(one.who) : h("span", { title: `${one.user}@${one.host}` }, one.agent ?? `${one.user}@${one.host}`),
      duration(one.age_seconds),
      h(`span${one.silent_seconds > 300 ? ".ts-wrong" : ""}`, {}, duration(one.silent_seconds)),
      one.writes.map((w) => h("div", {}, `${w.table}: write id ${w.write_id ?? "–"}`, w.instant ? `, instant ${w.instant}` : "")),
    ]);
    return h(
      "section.ts-card",
      {},
      title,
      each.error && trouble(each.error),
      h("p.ts-muted", {}, newest(it.head, rate(each.metastore, it.head, now))),
      replications(each),
      h("h3", {}, "Consumers and replicas"),
      grid(CONSUMERS, consumers, "nobody follows this log"),
      h("h3", {}, "Open transactions"),
      grid(TXNS, txns, "no transaction is open"),
      it.more_transactions > 0 && h("p.ts-muted", {}, `and ${exact(it.more_transactions)} more`),
    );
  }

  return {
    element: body,
    async refresh() {
      const found = await api("log");
      body.replaceChildren(
        ...(found.metastores.length
          ? found.metastores.map((each) => section(each, found.now))
          : [h("p.ts-muted.ts-empty", {}, "There is no connection of type table_metastore.")]),
      );
      return found.metastores.some((each) => each.state === "reading");
    },
  };
}
