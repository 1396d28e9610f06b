// Making and changing what is shown. Text is always set as text: what a key or a reason says is never markup.

const WHOLE = new Intl.NumberFormat("en");

export const byId = (id) => document.getElementById(id);

/** An element with attributes, and with children that are elements or text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Sets the text of an element, if it is another: what stays the same keeps selections and says nothing. */
export function text(node, words) {
  const said = String(words);
  if (node.textContent !== said) node.textContent = said;
}

export const whole = (value) => WHOLE.format(value);

/** A rate, as people read it. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? value.toFixed(1) : whole(Math.round(value));
}

/** Shows the sum of all values that metrics have under a name and labels; says which they are. */
export function counted(node, value, names, labels = {}) {
  node.dataset.metric = names;
  node.dataset.labels = JSON.stringify(labels);
  node.dataset.value = value;
  text(node, whole(value));
}

/** Keeps a child of `parent` for each item, in their order, and makes only what is new: what has the focus keeps it. */
export function keep(parent, items, keyOf, make, update) {
  const known = parent.kept ?? new Map();
  const kept = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = known.get(key) ?? make(item);
    update?.(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    kept.set(key, child);
  }
  for (const child of [...parent.children]) {
    if (![...kept.values()].includes(child)) child.remove();
  }
  parent.kept = kept;
}

/** A row of a table, whose cells say what their column is called: on a phone each row is a card. */
export function row(table, count) {
  const titles = [...table.tHead.rows[0].cells];
  const made = element("tr", { role: "row" });
  for (let index = 0; index < count; index += 1) {
    const cell = element(index === 0 ? "th" : "td", index === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" });
    cell.dataset.label = titles[index].textContent.trim();
    if (titles[index].classList.contains("n")) cell.className = "n";
    made.append(cell);
  }
  return made;
}

/** Rows for items; without any, one that says so. */
export function rows(id, items, keyOf, update, nothing) {
  const table = byId(id);
  const columns = table.tHead.rows[0].cells.length;
  const shown = items.length > 0 ? items : [null];
  keep(
    table.tBodies[0],
    shown,
    (item) => (item === null ? "nothing" : `of ${keyOf(item)}`),
    (item) => {
      if (item !== null) return row(table, columns);
      return element("tr", { role: "row", class: "nothing" }, element("td", { role: "cell", colspan: columns }, nothing));
    },
    (made, item) => item !== null && update(made.cells, item, made),
  );
}

/** Says again what tables are: as cards, browsers would forget it. */
export function tablesStayTables() {
  for (const table of document.querySelectorAll("table")) {
    table.setAttribute("role", "table");
    for (const part of table.querySelectorAll("thead, tbody")) part.setAttribute("role", "rowgroup");
    for (const line of table.querySelectorAll("thead tr")) line.setAttribute("role", "row");
    for (const title of table.querySelectorAll("thead th")) title.setAttribute("role", "columnheader");
  }
}

/** A bar that says what is left, in percent, and the number beside it. */
export function headroom(cell, percent, of) {
  if (percent === null) {
    text(cell, "more than half");
    cell.classList.add("quiet");
    return;
  }
  cell.classList.remove("quiet");
  if (!cell.querySelector("meter")) {
    cell.replaceChildren(element("meter", { min: 0, max: 100, low: 10, high: 40, optimum: 100 }), element("span"));
  }
  const [meter, words] = cell.children;
  meter.value = percent;
  meter.setAttribute("aria-label", `Headroom of ${of}`);
  text(words, `${percent} %`);
}

/** How long something still holds. */
export function left(untilUs, nowUs) {
  if (untilUs === null || untilUs === undefined) return "until cleared";
  const seconds = Math.max(0, Math.ceil((untilUs - nowUs) / 1e6));
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3_600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${seconds % 60} s`;
  return `${seconds} s`;
}
