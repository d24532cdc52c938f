// SPDX-License-Identifier: MIT
// The flame graph: stacks from the outermost call inwards, or, as `callers`, from each function
// outwards. Both are trees of nodes { function, time, own, calls, parent }; callees or callers of a
// node are made when they are wanted.

const flame = data.flame;
const nodes = flame.function.length;
const HEIGHT = 18, NARROW = 0.4;

// Callees of each node; the last list is that of the outermost calls.
const callees = Array.from({ length: nodes + 1 }, () => []);
for (let i = 0; i < nodes; i++) callees[flame.parent[i] < 0 ? nodes : flame.parent[i]].push(i);
// Stacks of each node, with those within it; the last number is of all.
const stacks = [...flame.left.map((left) => left + 1), flame.outside];
for (let i = nodes - 1; i >= 0; i--)
  stacks[flame.parent[i] < 0 ? nodes : flame.parent[i]] += stacks[i];
const ownTime = flame.own.reduce((sum, own) => sum + own, 0);

function inwards() {
  const inner = (node) => callees[node.at].map((i) => ({
    at: i, function: flame.function[i], time: flame.time[i], own: flame.own[i],
    calls: flame.hits[i], stacks: stacks[i], parent: node,
  }));
  return [{ at: nodes, time: flame.whole, stacks: stacks[nodes], parent: null }, inner];
}

// `leaves` are nodes that the function spent time in; `at` where the way outwards from each is.
function outwards() {
  const leaves = [];
  for (let i = 0; i < nodes; i++) if (flame.own[i]) leaves.push(i);
  function inner(node) {
    const groups = new Map();
    node.at.forEach((i, k) => {
      if (i < 0) return;
      const id = flame.function[i], leaf = node.leaves[k];
      let group = groups.get(id);
      if (!group) {
        group = { function: id, at: [], leaves: [], time: 0, calls: 0, stacks: 0, parent: node };
        groups.set(id, group);
      }
      group.at.push(flame.parent[i]);
      group.leaves.push(leaf);
      group.time += flame.own[leaf];
      group.calls += flame.hits[leaf];
    });
    return [...groups.values()];
  }
  return [{ at: leaves, leaves, time: ownTime, stacks: 0, parent: null }, inner];
}

let root = null, inner = null, drawnCallers = null, cursor = null;
let boxes = []; // { node, element, level, left }, level by level, from the left

function within(node) {
  if (!node.inner) {
    const name = (one) => names[one.function];
    node.inner = inner(node).sort((a, b) => (name(a) < name(b) ? -1 : 1));
  }
  return node.inner;
}

function zoomed() {
  let node = root;
  for (const word of view.zoom ? view.zoom.split(";") : []) {
    const next = within(node).find((one) => words[one.function] === word);
    if (!next) break;
    node = next;
  }
  return node;
}

function wayTo(node) {
  const way = [];
  for (; node.parent; node = node.parent) way.unshift(words[node.function]);
  return way.join(";");
}

function zoom(node) {
  cursor = node;
  go({ zoom: wayTo(node) });
}

function describe(node) {
  const part = `${time(node.time)} (${share(node.time, flame.whole)})`;
  if (data.unit === "hits") return view.callers ? part : `${part}, itself ${number(node.own)}`;
  if (!view.callers) return `${part}, itself ${time(node.own)}, ${count(node.calls, "call")}`;
  let leaf = node;
  while (leaf.parent.parent) leaf = leaf.parent;
  const where = leaf === node ? "itself" : `in ${labels[leaf.function]}, called this way`;
  return `${part} ${where}, ${count(node.calls, "call")}`;
}

function tellNode(node) {
  const source = data.sources[node.function];
  tell(`${names[node.function]}${source ? `  ${source}` : ""}\n${describe(node)}`);
}

function box(node, level, left, width, outer) {
  const id = node.function;
  const element = make("div", {
    title: names[id], tabIndex: -1, role: "treeitem",
    "aria-level": level + 1, "aria-label": `${names[id]}, ${describe(node)}`,
  }, width > 20 ? labels[id] : "");
  element.style.cssText = `left:${left}px;top:${level * HEIGHT}px;width:${width}px;`;
  element.style.background = colours[id];
  element.classList.toggle("outer", outer);
  element.classList.toggle("found", found[id] === 1);
  element.onmouseenter = () => tellNode(node);
  element.onfocus = () => { enter(node); tellNode(node); };
  element.onclick = () => { zoom(node); tellNode(node); };
  return { node, element, level, left };
}

// The one box that Tab goes to.
function enter(node) {
  for (const one of boxes) one.element.tabIndex = one.node === node ? 0 : -1;
  cursor = node;
}

function drawFlame() {
  const graph = get("graph"), width = graph.clientWidth;
  const held = graph.contains(document.activeElement);
  if (drawnCallers !== view.callers) {
    [root, inner] = view.callers ? outwards() : inwards();
    [drawnCallers, cursor] = [view.callers, null];
  }
  const focus = zoomed(), above = [];
  for (let node = focus; node.parent; node = node.parent) above.unshift(node);
  boxes = above.map((node, level) => box(node, level, 0, width, node !== focus));
  let narrow = focus.stacks - (focus === root ? 0 : 1);
  const scale = width / (focus.time || 1);
  for (let row = [[focus, 0]], level = above.length; row.length; level++) {
    const next = [];
    for (const [node, from] of row) {
      let left = from;
      for (const one of within(node)) {
        const size = one.time * scale;
        if (size >= NARROW) {
          boxes.push(box(one, level, left, size, false));
          next.push([one, left]);
          narrow--;
        }
        left += size;
      }
    }
    row = next;
  }
  graph.style.height = `${(boxes.at(-1)?.level ?? -1) * HEIGHT + HEIGHT}px`;
  graph.replaceChildren(...boxes.map((one) => one.element));
  const entered = boxes.find((one) => one.node === cursor) ?? boxes[0];
  if (entered) enter(entered.node);
  if (held) entered?.element.focus();
  get("callers").setAttribute("aria-pressed", view.callers ? "true" : "false");
  const missing = flame.whole - ownTime;
  const apart = `${time(missing)} (${share(missing, flame.whole)}) in stacks too narrow to draw`;
  get("narrow").textContent = view.callers
    ? (missing > 0 ? apart : "")
    : (narrow ? `${count(narrow, "stack")} too narrow to draw` : "");
}

// Time in matching functions; within several of them it counts once: that of the outermost.
function foundTime() {
  const inside = new Uint8Array(nodes);
  let sum = 0;
  for (let i = 0; i < nodes; i++) {
    const outer = flame.parent[i] >= 0 && inside[flame.parent[i]];
    inside[i] = outer || found[flame.function[i]];
    if (inside[i] && !outer) sum += flame.time[i];
  }
  return sum;
}

function flameKey(event) {
  const here = boxes.findIndex((one) => one.node === cursor);
  if (here < 0) return;
  const { node, level } = boxes[here];
  let to = -1;
  if (event.key === "ArrowUp") to = boxes.findIndex((one) => one.node === node.parent);
  else if (event.key === "ArrowLeft") to = boxes[here - 1]?.level === level ? here - 1 : -1;
  else if (event.key === "ArrowRight") to = boxes[here + 1]?.level === level ? here + 1 : -1;
  else if (event.key === "ArrowDown") {
    const inside = boxes.filter((one) => one.node.parent === node);
    to = boxes.indexOf(inside.sort((a, b) => b.node.time - a.node.time)[0]);
  } else if (event.key === "Enter" || event.key === " ") zoom(node);
  else return;
  event.preventDefault();
  boxes[to]?.element.focus();
}

get("graph").onkeydown = flameKey;
get("callers").onclick = () => go({ callers: view.callers ? "" : "1", zoom: "" });
