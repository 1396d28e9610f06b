// Rates over time: begun with what the server kept, then kept in the page, drawn as SVG, and as a table beside it.

import { byId, element, keep, rate, text } from "./dom.js";

/** Points that are kept: five minutes of one each second. */
export const POINTS_MAX = 300;
/** Rows of the table. */
const ROWS_MAX = 30;
/** A longer pause between two looks is a gap; the server keeps a moment every five seconds. */
const GAP_US = 12_000_000;
/** The shortest time that is drawn. */
const SECONDS_MIN = 60;
const KINDS = ["allowed", "denied", "over"];
const HEIGHT = 220;
const MARGIN = { left: 44, right: 8, top: 10, bottom: 22 };
const SVG = "http://www.w3.org/2000/svg";

/** What became of requests, by what the page calls it. */
export const kindsOf = (counts) => ({
  allowed: (counts.allowed ?? 0) + (counts.outage_allowed ?? 0),
  denied: (counts.denied ?? 0) + (counts.outage_denied ?? 0),
  over: counts.over_limit ?? 0,
});

export class History {
  points = [];
  #before = null;

  /** Notes the counts of a moment; `of` has them by series, "" is all together. */
  note(atUs, of) {
    const before = this.#before;
    this.#before = { atUs, of };
    // A server that was started again counts from nothing.
    const began = before === null || atUs <= before.atUs || KINDS.some((kind) => of.get("")[kind] < before.of.get("")[kind]);
    if (began) {
      this.gap();
      return;
    }
    if (atUs - before.atUs > GAP_US) this.gap();
    const seconds = (atUs - before.atUs) / 1e6;
    const rates = new Map();
    for (const [series, counts] of of) {
      const earlier = before.of.get(series);
      const each = KINDS.map((kind) => Math.max(0, counts[kind] - (earlier?.[kind] ?? 0)) / seconds);
      if (series === "" || each.some((value) => value > 0)) rates.set(series, each);
    }
    this.#add({ atUs, rates });
  }

  /** Nothing is known of a while. */
  gap() {
    if (this.points.length > 0 && this.points.at(-1).rates !== null) this.#add({ atUs: this.points.at(-1).atUs + 1, rates: null });
  }

  #add(point) {
    this.points.push(point);
    if (this.points.length > POINTS_MAX) this.points.shift();
  }

  /** The rates of a series over the last few looks; null if there is none. */
  now(series, looks = 3) {
    const last = this.points.slice(-looks).filter((point) => point.rates !== null);
    if (last.length === 0) return [null, null, null];
    return KINDS.map((_, kind) => last.reduce((sum, point) => sum + (point.rates.get(series)?.[kind] ?? 0), 0) / last.length);
  }

  /** Each point of a series, as a time and its rates. */
  of(series) {
    const none = [0, 0, 0];
    return this.points.map(({ atUs, rates }) => ({ atUs, rates: rates && (rates.get(series) ?? none) }));
  }
}

function shape(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The first of 1, 2, 5, 10, 20, ... that is not below. */
function round(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

const ago = (us) => (us < 6e7 ? `${Math.round(us / 1e6)} s ago` : `${us / 6e7} min ago`);

function paths(points, kind, x, y) {
  let line = "";
  let wasGap = true;
  for (const { atUs, rates } of points) {
    if (rates !== null) line += `${wasGap ? "M" : "L"}${x(atUs).toFixed(1)} ${y(rates[kind]).toFixed(1)}`;
    wasGap = rates === null;
  }
  return line;
}

export function draw(history, series, nowUs) {
  const place = byId("chart");
  const width = Math.max(280, place.clientWidth);
  const points = history.of(series);
  const most = round(Math.max(1, ...points.flatMap(({ rates }) => rates ?? [0])));
  // What there is fills the picture: from one minute on, up to all of it.
  const first = points[0]?.atUs ?? nowUs;
  const span = Math.min(POINTS_MAX, Math.max(SECONDS_MIN, Math.ceil((nowUs - first) / 6e7) * 60)) * 1e6;
  const x = (atUs) => MARGIN.left + (width - MARGIN.left - MARGIN.right) * Math.max(0, 1 - (nowUs - atUs) / span);
  const y = (value) => HEIGHT - MARGIN.bottom - (HEIGHT - MARGIN.top - MARGIN.bottom) * (value / most);
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((part) => {
    const at = y(most * part);
    const label = shape("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, rate(most * part));
    return [shape("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }), label];
  });
  const times = [[ago(span), span / 1e6, "start"], [ago(span / 2), span / 2e6, "middle"], ["now", 0, "end"]].map(([word, seconds, anchor]) =>
    shape("text", { x: x(nowUs - seconds * 1e6), y: HEIGHT - 4, "text-anchor": anchor }, word),
  );
  const lines = KINDS.map((kind, index) => shape("path", { class: kind, d: paths(points, index, x, y) }));
  const [allowed, denied, over] = history.now(series).map(rate);
  const words = `Decisions per second over ${span / 6e7} minutes. Now ${allowed} allowed, ${denied} denied, ${over} over limit.`;
  const picture = shape("svg", { role: "img", "aria-label": words, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` });
  picture.append(shape("g", { class: "grid" }, ...grid, ...times), ...lines);
  place.replaceChildren(picture);
  tell(points);
}

function tell(points) {
  const newest = points.filter(({ rates }) => rates !== null).slice(-ROWS_MAX).reverse();
  keep(
    byId("chart-rows"),
    newest,
    ({ atUs }) => atUs,
    () => element("tr", { role: "row" }, ...["th", "td", "td", "td"].map((name) => element(name, { role: name === "th" ? "rowheader" : "cell" }))),
    (made, { atUs, rates }) => {
      text(made.cells[0], new Date(atUs / 1000).toLocaleTimeString());
      rates.forEach((value, index) => text(made.cells[index + 1], rate(value)));
    },
  );
}
