// Shows a snapshot. Every number that /metrics has says which it is, so that tests can compare the two.

import { History, draw, kindsOf } from "./chart.js";
import { byId, counted, element, headroom, keep, left, rate, rows, text, whole } from "./dom.js";

const DECISIONS = "ratekeeper_decisions_total ratekeeper_limit_decisions_total";
const CHECKS = ["/v1/check", "/v1/limit", "/v1/check/batch", "/v1/limit/batch"];
/** Calls of the page itself and of monitoring, which go on by themselves. */
const WATCHING = /^\/(metrics|dashboard|healthz|readyz|v1\/dashboard)/;

export const history = new History();
let shown = null;
let latency = null;

/** The series of a rule and plan, or of a name of charges. */
const seriesOf = ({ service, rule, plan, name }) => (name === undefined ? `${service}/${rule} (${plan})` : `charges: ${name}`);

/** All series, those of policies first. */
const allSeries = (snapshot) => [...snapshot.decisions.series, ...snapshot.limit_decisions.series];

/** Takes the counts of a moment, which may be one before the page was opened; the sum of all, by outcome. */
export function note(moment) {
  const sum = {};
  for (const totals of [moment.decisions.totals, moment.limit_decisions.totals]) {
    for (const [outcome, count] of Object.entries(totals)) sum[outcome] = (sum[outcome] ?? 0) + count;
  }
  const of = new Map([["", kindsOf(sum)], ...allSeries(moment).map(({ labels, counts }) => [seriesOf(labels), kindsOf(counts)])]);
  history.note(moment.at_us, of);
  return sum;
}

/** Takes a snapshot, and shows it. */
export function show(snapshot) {
  shown = snapshot;
  const sum = note(snapshot);
  overview(snapshot, sum);
  choices(snapshot);
  rulesAndPlans(snapshot);
  keys(snapshot);
  store(snapshot);
  calls(snapshot);
  policies(snapshot);
  held(snapshot);
  redraw();
}

export function redraw() {
  if (shown) draw(history, byId("chart-of").value, shown.at_us);
}

function overview(snapshot, sum) {
  text(byId("version"), snapshot.version);
  const rates = history.now("");
  ["allowed", "denied", "over"].forEach((kind, index) => text(byId(`rate-${kind}`), rate(rates[index])));
  for (const [kind, outcome] of [["allowed", "allowed"], ["denied", "denied"], ["over", "over_limit"]]) {
    counted(byId(`sum-${kind}`), sum[outcome] ?? 0, DECISIONS, { outcome });
  }
  const outages = new Map(snapshot.metrics.ratekeeper_outage_decisions_total.map(({ labels, value }) => [labels.outcome, value]));
  for (const [outcome, value] of outages) counted(byId(`outage-${outcome}`), value, "ratekeeper_outage_decisions_total", { outcome });
  counted(byId("sum-outage"), [...outages.values()].reduce((all, value) => all + value, 0), "ratekeeper_outage_decisions_total");
  const { answers, breaker, failure } = snapshot.health.store;
  text(byId("store-state"), answers ? "answers" : breaker === "closed" ? "does not answer" : `breaker ${breaker}`);
  text(byId("store-kind"), snapshot.store);
  times(snapshot);
  const alarms = [];
  if (!snapshot.health.ready) alarms.push("The server is not ready.");
  if (!answers) alarms.push(`The store takes no charges: ${failure}.`);
  for (const service of snapshot.health.policies.refused) alarms.push(`A document of ${service} was refused; the policy before it is in force.`);
  if (snapshot.health.stopping) alarms.push("The server is about to stop.");
  text(byId("alarms"), alarms.join(" "));
  byId("alarms").hidden = alarms.length === 0;
}

/** How long half of the checks took, and 99 of 100: of the last look that saw some. */
function times(snapshot) {
  const series = snapshot.metrics.ratekeeper_request_seconds.filter(({ labels }) => CHECKS.includes(labels.endpoint));
  const ends = series[0]?.value.ends ?? [];
  const counts = ends.map((_, index) => series.reduce((all, { value }) => all + value.counts[index], 0));
  const fresh = counts.map((count, index) => count - (latency?.counts[index] ?? 0));
  const lately = fresh.every((count) => count >= 0) ? fresh : counts;
  if (lately.some((count) => count > 0)) {
    latency = { counts, middle: quantile(ends, lately, 0.5), most: quantile(ends, lately, 0.99) };
  }
  text(byId("latency-middle"), latency?.middle ?? "–");
  text(byId("latency-most"), latency?.most ?? "–");
  const all = snapshot.metrics.ratekeeper_requests_total.filter(({ labels }) => CHECKS.includes(labels.endpoint));
  const sum = all.reduce((total, { value }) => total + value, 0);
  counted(byId("sum-calls"), sum, "ratekeeper_requests_total", { endpoint: CHECKS });
}

/** The end of the bucket in which a share of all is reached. */
function quantile(ends, counts, share) {
  const wanted = counts.reduce((sum, count) => sum + count, 0) * share;
  let sum = 0;
  const index = counts.findIndex((count) => (sum += count) >= wanted);
  const end = ends[index];
  if (end === null || end === undefined) return "> 1 s";
  return end < 0.001 ? `≤ ${Math.round(end * 1e6)} µs` : end < 1 ? `≤ ${end * 1e3} ms` : `≤ ${end} s`;
}

/** What can be chosen follows from the rules there are. */
function choices(snapshot) {
  const options = (select, values) =>
    keep(select, values, ([value]) => value, ([value]) => element("option", { value }), (made, [, word]) => text(made, word));
  const series = allSeries(snapshot).map(({ labels }) => seriesOf(labels)).sort();
  options(byId("chart-of"), [["", "all"], ...series.map((name) => [name, name])]);
  const services = snapshot.policies.services.filter((service) => service.in_force);
  const rules = services.flatMap(({ service, rules }) => [`${service}/*`, ...rules.map((rule) => `${service}/${rule.name}`)]);
  const names = (rule) => (rule === "*" ? "* (everything)" : rule.endsWith("/*") ? `${rule} (all of the service)` : rule);
  // A rule comes first: what is chosen without a thought is small.
  const sorted = [...rules.filter((rule) => !rule.endsWith("*")), ...rules.filter((rule) => rule.endsWith("*")), "*"];
  for (const select of document.querySelectorAll("select.rules")) options(select, sorted.map((rule) => [rule, names(rule)]));
  keep(byId("endpoints"), rules.filter((rule) => !rule.endsWith("*")), (rule) => rule, (rule) => element("option", { value: rule }));
}

function rulesAndPlans(snapshot) {
  const modes = new Map();
  const quotas = new Map();
  for (const { service, rules, limits } of snapshot.policies.services) {
    for (const { name, mode } of rules) modes.set(`${service}/${name}`, mode);
    for (const { rule, quotas: own, plans } of limits) {
      quotas.set(`${service}/${rule} default`, Object.values(own).join(", "));
      for (const { of, quotas: ofPlan } of plans) quotas.set(`${service}/${rule} ${of}`, Object.values(ofPlan).join(", ") || "unlimited");
    }
  }
  for (const { rule, mode } of snapshot.switches.modes ?? []) {
    for (const known of modes.keys()) {
      if (mode && (rule === "*" || rule === known || (rule.endsWith("/*") && known.startsWith(rule.slice(0, -1))))) modes.set(known, `${mode} (switched)`);
    }
  }
  const nearest = new Map(snapshot.headroom.map(({ labels, value }) => [`${labels.service}/${labels.rule}`, value]));
  // What is there for everything beyond the bound is shown once it counts something.
  const idle = ({ labels, counts }) => labels.rule === "other" && Object.values(counts).every((count) => count === 0);
  const unused = ({ labels, counts }) => labels.name !== undefined && Object.values(counts).every((count) => count === 0);
  const series = allSeries(snapshot).filter((one) => !idle(one) && !unused(one));
  series.sort((one, other) => (seriesOf(one.labels) < seriesOf(other.labels) ? -1 : 1));
  const count = (counts, labels, ...outcomes) => (cell) => {
    const metric = labels.name === undefined ? "ratekeeper_decisions_total" : "ratekeeper_limit_decisions_total";
    counted(cell, outcomes.reduce((sum, outcome) => sum + (counts[outcome] ?? 0), 0), metric, { ...labels, outcome: outcomes });
  };
  rows("rules", series, ({ labels }) => seriesOf(labels), (cells, { labels, counts }) => {
    const rule = labels.name === undefined ? `${labels.service}/${labels.rule}` : labels.name;
    text(cells[0], rule);
    text(cells[1], labels.plan ?? "–");
    text(cells[2], modes.get(rule) ?? (labels.name === undefined ? "–" : "as asked"));
    text(cells[3], quotas.get(`${rule} ${labels.plan}`) ?? (labels.name === undefined ? "–" : "as asked"));
    const [allowed, denied, over] = history.now(seriesOf(labels));
    text(cells[4], allowed === null ? "–" : rate(allowed + denied + over));
    count(counts, labels, "allowed")(cells[5]);
    count(counts, labels, "denied")(cells[6]);
    count(counts, labels, "over_limit")(cells[7]);
    count(counts, labels, "denied_elsewhere")(cells[8]);
    count(counts, labels, "outage_allowed", "outage_denied")(cells[9]);
    if (labels.name === undefined) {
      const percent = nearest.get(rule) ?? null;
      headroom(cells[10], percent, rule);
      if (percent !== null) counted(cells[10].lastElementChild, percent, "ratekeeper_rule_headroom_percent", { service: labels.service, rule: labels.rule });
      if (percent !== null) text(cells[10].lastElementChild, `${percent} %`);
    } else text(cells[10], "–");
  }, "No rule has decided anything yet.");
  const out = snapshot.decisions.left_out + snapshot.limit_decisions.left_out;
  text(byId("rules-more"), out > 0 ? `${whole(out)} more, which have decided less, are at /metrics.` : "");
}

function keys({ hot_keys: hot, near_keys: near }) {
  rows("hot", hot.list, ({ rule, key }) => `${rule} ${key}`, (cells, { rule, key, denied, at_most_too_many: error }) => {
    text(cells[0], key);
    text(cells[1], rule);
    text(cells[2], error > 0 ? `${whole(denied - error)} to ${whole(denied)}` : whole(denied));
  }, "No key has been denied yet.");
  rows("near", near.list, ({ rule, key, quota }) => `${rule} ${key} ${quota}`, (cells, { rule, key, limit, remaining, used_percent: used }) => {
    text(cells[0], key);
    text(cells[1], rule);
    text(cells[2], `${whole(remaining)} of ${whole(limit)}`);
    headroom(cells[3], Math.max(0, 100 - used), key);
  }, "No key has used half of a quota within the last minute.");
}

function store(snapshot) {
  const { metrics, health } = snapshot;
  const number = (name) => metrics[name]?.[0]?.value;
  const facts = [["Where", snapshot.store], ["Takes charges", health.store.answers ? "yes" : `no: ${health.store.failure}`], ["Breaker", health.store.breaker]];
  for (const { labels, value } of metrics.ratekeeper_store_nodes ?? []) {
    facts.push([labels.state === "taking" ? "Servers that take charges" : "Servers that do not", value, "ratekeeper_store_nodes", labels]);
  }
  if (health.store.nodes?.away?.length) facts.push(["Away", health.store.nodes.away.join(", ")]);
  const counts = [
    ["Breaker opened", "ratekeeper_store_breaker_opened_total"], ["Failed checks", "ratekeeper_store_failures_total"],
    ["Timeouts", "ratekeeper_store_timeouts_total"], ["Overloads", "ratekeeper_store_overloads_total"],
    ["Waiting", "ratekeeper_store_waiting"], ["Without room", "ratekeeper_store_full_total"],
    ["Counters forgotten at the bound", "ratekeeper_store_evicted_total"], ["Data directory, bytes", "ratekeeper_data_bytes"],
    ["Failures of the data directory", "ratekeeper_data_failures_total"],
    ["Connections turned away", "ratekeeper_connections_refused_total"],
  ];
  facts.push(...counts.filter(([, name]) => number(name) !== undefined).map(([word, name]) => [word, number(name), name, {}]));
  for (const { labels, value } of metrics.ratekeeper_notices_total ?? []) {
    facts.push([`Notices ${labels.result}`, value, "ratekeeper_notices_total", labels]);
  }
  keep(
    byId("store"), facts, ([word]) => word,
    ([word]) => element("div", {}, element("dt", {}, word), element("dd")),
    (made, [, value, name, labels]) => (name ? counted(made.lastElementChild, value, name, labels) : text(made.lastElementChild, value)),
  );
}

function calls({ metrics }) {
  const shownCalls = metrics.ratekeeper_requests_total.filter(({ labels }) => !WATCHING.test(labels.endpoint));
  rows("calls", shownCalls, ({ labels }) => `${labels.endpoint} ${labels.status}`, (cells, { labels, value }) => {
    text(cells[0], labels.endpoint);
    text(cells[1], labels.status);
    counted(cells[2], value, "ratekeeper_requests_total", labels);
  }, "Nobody has called yet.");
}

function policies(snapshot) {
  text(byId("policy-source"), `From ${snapshot.policy_source || "the program"}.`);
  keep(byId("policies"), snapshot.policies.services, ({ service }) => service, () => element("article"), (made, service) => {
    const since = service.since_seconds ? `in force since ${new Date(service.since_seconds * 1000).toLocaleString()}` : "no policy is in force";
    const told = JSON.stringify([service.service, since, service.digest, service.last_refusal, service.limits, service.warnings]);
    if (made.told === told) return;
    made.told = told;
    const lines = service.limits.map(({ rule, keys: of, quotas, plans, custom_count: custom }) => {
      const general = Object.values(quotas).join(", ") || "unlimited";
      const each = plans.map(({ of: plan, quotas: ofPlan }) => `${plan}: ${Object.values(ofPlan).join(", ") || "unlimited"}`);
      if (custom > 0) each.push(`${whole(custom)} for single keys`);
      return element("li", {}, element("strong", {}, rule), " ", element("code", {}, general), each.length ? ` (${each.join("; ")})` : "", element("span", { class: "quiet" }, ` by ${[of].flat().join(", ")}`));
    });
    made.replaceChildren(
      element("h3", {}, service.service),
      element("p", { class: "quiet" }, service.digest ? `${since}, digest ${service.digest.slice(0, 16)}` : since),
      ...(service.last_refusal ? [element("p", { class: "note bad" }, `The last document was refused: ${service.last_refusal}`)] : []),
      ...service.warnings.map((warning) => element("p", { class: "note" }, warning)),
      element("ul", { class: "limits" }, ...lines),
    );
  });
}

/** What operators have set. */
function held(snapshot) {
  const { switches, overrides, at_us: now } = snapshot;
  const set = [
    ...(switches.modes ?? []).map((one) => ({ ...one, kind: "modes" })),
    ...(switches.emergencies ?? []).map((one) => ({ ...one, kind: "emergencies" })),
  ];
  const words = ({ kind, mode, enforce_percent: percent, emergency, key }) => {
    if (kind === "emergencies") return emergency === "lift" ? "lifted: everything passes" : key ? `blocked: ${key}` : "blocked: nothing passes";
    return [mode && `mode ${mode}`, percent !== null && `enforced for ${percent} %`].filter(Boolean).join(", ");
  };
  rows("switches", set, ({ kind, rule, key }) => `${kind} ${rule} ${key}`, (cells, one) => {
    text(cells[0], one.rule === "*" ? "* (everything)" : one.rule);
    text(cells[1], words(one));
    text(cells[2], left(one.until_us, now));
    const about = one.key ? { rule: one.rule, key: one.key } : { rule: one.rule };
    action(cells[3], one.kind === "modes" ? "Clear" : "End", `${words(one)}, ${one.rule}`, `v1/${one.kind}/clear`, about);
  }, switches.failure ? `Switches cannot be read: ${switches.failure}` : "Nothing is set: rules do what the policy says.");
  rows("overrides", overrides.list ?? [], (one) => JSON.stringify([one.endpoint, one.organisation, one.project]), (cells, one) => {
    text(cells[0], one.endpoint);
    text(cells[1], one.organisation);
    text(cells[2], one.project ?? "all");
    text(cells[3], one.window ? `${whole(one.limit)} per ${one.window}` : whole(one.limit));
    text(cells[4], left(one.until_us, now));
    text(cells[5], [one.reason, one.author && `by ${one.author}`].filter(Boolean).join(", ") || "–");
    const about = { endpoint: one.endpoint, organisation: one.organisation };
    if (one.project !== null) about.project = one.project;
    action(cells[6], "Delete", `override of ${one.endpoint} for ${one.organisation}`, "v1/overrides/delete", about);
  }, overrides.failure ? `Overrides cannot be read: ${overrides.failure}` : "No override is set.");
  const more = (overrides.count ?? 0) - (overrides.list ?? []).length;
  text(byId("overrides-note"), [more > 0 && `${whole(more)} more are not shown.`, overrides.seconds_ago > 1 && `As of ${overrides.seconds_ago} s ago.`].filter(Boolean).join(" "));
}

/** A button that makes a call; `actions.js` listens. */
function action(cell, word, about, path, body) {
  let button = cell.firstElementChild;
  if (!button) {
    button = element("button", { type: "button", class: "plain small" }, word);
    cell.append(button);
  }
  button.setAttribute("aria-label", `${word}: ${about}`);
  button.dataset.call = path;
  button.dataset.body = JSON.stringify(body);
}
