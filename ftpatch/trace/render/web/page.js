// SPDX-License-Identifier: MIT
// The page around the views: tabs, search, light and dark, and keys that hold everywhere.

const VIEWS = [
  { id: "flame", text: "flame graph", draw: () => drawFlame() },
  { id: "table", text: "functions", draw: () => drawTable() },
  { id: "timeline", text: "time line", draw: () => drawTimeline() },
].filter((one) => data[one.id]);

function show() {
  find();
  const current = VIEWS.find((one) => one.id === view.tab) ?? VIEWS[0];
  for (const { id } of VIEWS) {
    const tab = get(`tab-${id}`);
    tab.setAttribute("aria-selected", id === current.id ? "true" : "false");
    tab.tabIndex = id === current.id ? 0 : -1;
    get(id).hidden = id !== current.id;
  }
  if (get("search").value !== view.search) get("search").value = view.search;
  get("search").setAttribute("aria-invalid", wrong ? "true" : "false");
  const functions = found.reduce((sum, one) => sum + one, 0), spent = pattern ? foundTime() : 0;
  const matching = `${number(functions)} of ${count(names.length, "function")}`;
  get("matched").textContent =
    pattern ? `${matching}, ${time(spent)} (${share(spent, flame.whole)})` : wrong;
  current.draw();
}

function reset() {
  tell("");
  go({ zoom: "", from: "", to: "", search: "" });
}

const THEMES = ["", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  get("theme").textContent = `theme: ${theme || "system"}`;
  try {
    localStorage.setItem("ftpatch-theme", theme);
  } catch { /* pages in files may not keep anything */ }
}

function storedTheme() {
  try {
    const kept = localStorage.getItem("ftpatch-theme");
    return THEMES.includes(kept) ? kept : "";
  } catch {
    return "";
  }
}

get("theme").onclick = () => {
  const next = THEMES.indexOf(document.documentElement.dataset.theme) + 1;
  setTheme(THEMES[next % THEMES.length]);
  show();
};

get("tabs").onkeydown = (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const at = VIEWS.findIndex((one) => get(`tab-${one.id}`) === document.activeElement);
  const { id } = VIEWS[(at + step + VIEWS.length) % VIEWS.length];
  go({ tab: id });
  get(`tab-${id}`).focus();
};

get("search").oninput = () => go({ search: get("search").value }, false);
get("reset").onclick = reset;

document.onkeydown = (event) => {
  const typing = document.activeElement === get("search");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    get("search").select();
    get("search").focus();
  } else if (event.key === "Escape" && typing) {
    event.preventDefault();
    go({ search: "" }, false);
    get("search").blur();
  } else if (event.key === "Escape") reset();
};

window.onpopstate = () => { readView(); show(); };
window.onresize = () => show();

for (const { id, text } of VIEWS) {
  const properties = { type: "button", id: `tab-${id}`, role: "tab", "aria-controls": id };
  const tab = make("button", properties, text);
  tab.onclick = () => go({ tab: id });
  get("tabs").append(tab);
}
get("tabs").hidden = VIEWS.length < 2;
get("notes").textContent = data.notes.join("; ");
if (data.table) initTable();
if (data.timeline) initTimeline();
setTheme(storedTheme());
readView();
show();
