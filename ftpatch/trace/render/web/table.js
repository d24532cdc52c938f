// SPDX-License-Identifier: MIT
// The table of functions: sorted by any column, and only those that are searched for.

const sums = data.table;
const STEP = 500; // rows to show at once
const returned = (column) => (i) => (sums.most[i] < 0 ? -1 : column[i]);
const COLUMNS = [
  { key: "calls", text: "calls", of: (i) => sums.calls[i], show: number },
  { key: "total", text: "total", of: (i) => sums.total[i], show: micros },
  { key: "own", text: "self", of: (i) => sums.own[i], show: micros },
  { key: "least", text: "min", of: returned(sums.least), show: micros },
  { key: "avg", text: "avg", of: (i) => sums.avg[i], show: micros },
  { key: "most", text: "max", of: returned(sums.most), show: micros },
  { key: "name", text: "function", of: (i) => names[sums.function[i]] },
];

let shown = STEP, before = "";

function sorted() {
  const column = COLUMNS.find((one) => one.key === view.sort) ?? COLUMNS[1];
  const rows = sums.function.map((id, i) => i).filter((i) => !pattern || found[sums.function[i]]);
  const values = sums.function.map((id, i) => column.of(i));
  const sign = view.up ? 1 : -1;
  rows.sort((a, b) => (values[a] < values[b] ? -sign : values[a] > values[b] ? sign : a - b));
  return rows;
}

function sortBy({ key }) {
  const same = view.sort === key;
  const up = same ? !view.up : key === "name";
  go({ sort: key, up: up ? "1" : "" });
}

function row(i, first) {
  const id = sums.function[i], source = data.sources[id];
  const cells = COLUMNS.slice(0, -1).map((column) => {
    const value = column.of(i);
    return make("td", {}, value < 0 ? "-" : column.show(value));
  });
  const properties = { type: "button", title: names[id], tabIndex: first ? 0 : -1 };
  const name = make("button", properties, ...marked(id));
  name.onclick = () => {
    const exact = `^${names[id].replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`;
    go({ tab: "flame", zoom: "", search: exact });
  };
  const last = make("td", {}, name);
  if (source) last.append(" ", make("span", { className: "source" }, source));
  return make("tr", {}, ...cells, last);
}

function drawTable() {
  const asked = [view.sort, view.up, view.search].join("\n");
  if (asked !== before) shown = STEP;
  before = asked;
  for (const head of get("columns").children) {
    const order = view.up ? "ascending" : "descending";
    if (head.dataset.key === view.sort) head.setAttribute("aria-sort", order);
    else head.removeAttribute("aria-sort");
  }
  const rows = sorted();
  get("rows").replaceChildren(...rows.slice(0, shown).map((i, place) => row(i, place === 0)));
  get("more").hidden = rows.length <= shown;
  get("more").textContent = `${number(rows.length - shown)} more`;
}

function tableKey(event) {
  const buttons = [...get("rows").querySelectorAll("button")];
  const here = buttons.indexOf(document.activeElement);
  const to = {
    ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: buttons.length - 1,
  }[event.key];
  if (here < 0 || to === undefined || !buttons[to]) return;
  event.preventDefault();
  buttons[here].tabIndex = -1;
  buttons[to].tabIndex = 0;
  buttons[to].focus();
}

function initTable() {
  for (const column of COLUMNS) {
    const button = make("button", { type: "button" }, column.text);
    button.onclick = () => sortBy(column);
    const head = make("th", { scope: "col" }, button);
    head.dataset.key = column.key;
    get("columns").append(head);
  }
  get("rows").onkeydown = tableKey;
  get("more").onclick = () => { shown += STEP; drawTable(); };
}
