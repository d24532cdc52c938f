// SPDX-License-Identifier: MIT
"use strict";
// What all views share: the data, texts and colours, what is searched for, and the view itself,
// which the part of the address behind # keeps.

const data = JSON.parse(document.getElementById("data").textContent);
const names = data.names;
const labels = data.labels.map((label, i) => label || names[i]);
const get = (id) => document.getElementById(id);

// An element with properties, attributes ("aria-…", "role") and children; text is never markup.
function make(kind, properties = {}, ...children) {
  const made = document.createElement(kind);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "role" || key.includes("-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

function time(ns) {
  if (data.unit === "hits") return count(ns, "hit");
  if (data.unit !== "ns") return `${number(ns)} ticks`;
  for (const [least, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]])
    if (ns >= least) return `${(ns / least).toFixed(3)} ${unit}`;
  return `${ns} ns`;
}

// The same in a column, where times are compared: ftrace's unit throughout.
function micros(ns) {
  if (data.unit !== "ns") return time(ns);
  return `${number(Math.floor(ns / 1000))}.${String(ns % 1000).padStart(3, "0")} us`;
}

const number = (value) => value.toLocaleString("en");
const count = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;
const share = (part, whole) => `${(100 * part / (whole || 1)).toFixed(2)}%`;

const colours = names.map((name) => {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  return `hsl(${hash % 55} ${70 + (hash >>> 8) % 25}% ${62 + (hash >>> 16) % 12}%)`;
});

// What stands for each function in a link: its name, with a number where several have one name.
const seen = new Map();
const words = names.map((name) => {
  const before = seen.get(name) ?? 0;
  seen.set(name, before + 1);
  return encodeURIComponent(before ? `${name}~${before + 1}` : name);
});

const tell = (text) => { get("about").textContent = text; };

// The view. `zoom` is a way through the flame graph: words between semicolons.
const START = {
  tab: "flame", callers: "", zoom: "", sort: "total", up: "", from: "", to: "", search: "",
};
const view = { ...START };

function readView() {
  Object.assign(view, START);
  for (const pair of location.hash.slice(1).split("&")) {
    const [key, value = ""] = pair.split("=");
    if (!Object.hasOwn(START, key)) continue;
    try {
      view[key] = key === "zoom" ? value : decodeURIComponent(value);
    } catch { /* not made here: as if it were not there */ }
  }
}

function address() {
  const differing = Object.keys(START).filter((key) => view[key] !== START[key]);
  const pairs = differing.map(
    (key) => `${key}=${key === "zoom" ? view.zoom : encodeURIComponent(view[key])}`);
  return `#${pairs.join("&")}`;
}

// Show another view. With `step`, the browser's Back returns to the one before.
let writing = 0;
function go(changes, step = true) {
  clearTimeout(writing);
  Object.assign(view, changes);
  const same = address() === (location.hash || "#");
  if (step && !same) history.pushState(null, "", address());
  // Browsers stop pages that change their address many times a second.
  else if (!step) writing = setTimeout(() => history.replaceState(null, "", address()), 100);
  show();
}

// What is searched for: a pattern, null for nothing, and whether each function has it.
let pattern = null;
let found = new Uint8Array(names.length);
let wrong = "";

function find() {
  pattern = null;
  wrong = "";
  found = new Uint8Array(names.length);
  if (!view.search) return;
  try {
    pattern = new RegExp(view.search, /[A-Z]/.test(view.search) ? "g" : "gi");
  } catch {
    wrong = "not a regular expression";
    return;
  }
  found = Uint8Array.from(names, (name) => name.search(pattern) >= 0);
}

// A function's label, with what is searched for marked.
function marked(i) {
  const label = labels[i], parts = [];
  if (!found[i]) return [label];
  let from = 0;
  for (const match of label.matchAll(pattern)) {
    if (!match[0]) continue;
    parts.push(label.slice(from, match.index), make("mark", {}, match[0]));
    from = match.index + match[0].length;
  }
  // It may be in what the label leaves out.
  return from ? [...parts, label.slice(from)] : [make("mark", {}, label)];
}
