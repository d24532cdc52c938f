// SPDX-License-Identifier: MIT
// The time line: a canvas for each thread, calls by level. A box is a call, or a group of `calls`
// that are too short to be told apart; boxes of a level come one after the other.

const line = data.timeline;
const ROW = 16, HIGH = 640; // pixels of a level, and of a thread that has very many

class Lane {
  constructor(thread, at) {
    this.first = line.first[at];
    this.last = line.first[at + 1] ?? line.begin.length;
    this.levels = []; // the first box of each
    for (let i = this.first; i < this.last; i++)
      while (this.levels.length <= line.level[i]) this.levels.push(i);
    this.row = Math.max(2, Math.min(ROW, Math.floor(HIGH / this.levels.length)));
    this.title = `${thread.comm} ${thread.pid}, thread ${thread.tid}`;
    this.canvas = make("canvas", {
      tabIndex: 0, role: "application",
      "aria-label": `calls of ${this.title}: arrows choose one, Enter zooms in, Escape out`,
    });
    this.canvas.style.height = `${this.levels.length * this.row}px`;
    this.visible = false;
    this.chosen = -1;
    this.dragged = null;
    this.listen();
  }

  listen() {
    const { canvas } = this;
    const timeAt = (event) => range().from + event.offsetX / canvas.clientWidth * range().length;
    const boxAt = (event) => this.at(Math.floor(event.offsetY / this.row), timeAt(event));
    canvas.onpointerdown = (event) => {
      if (event.button) return;
      this.dragged = { x: event.offsetX, from: timeAt(event) };
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => {
      if (!this.dragged) {
        const i = boxAt(event);
        canvas.title = i < 0 ? "" : names[line.function[i]];
        if (i >= 0) tellBox(i);
        return;
      }
      this.draw();
      const ink = canvas.getContext("2d");
      ink.fillStyle = "rgb(100 150 255 / .3)";
      ink.fillRect(this.dragged.x, 0, event.offsetX - this.dragged.x, canvas.clientHeight);
    };
    canvas.onpointerup = (event) => {
      if (!this.dragged) return;
      const { x, from } = this.dragged, to = timeAt(event), i = boxAt(event);
      this.dragged = null;
      if (Math.abs(event.offsetX - x) > 4) zoomTo(Math.min(from, to), Math.max(from, to));
      else if (i >= 0) this.choose(i, true);
    };
    canvas.onpointercancel = () => { this.dragged = null; this.draw(); };
    canvas.onfocus = () => { if (this.chosen < 0) this.choose(this.first, false); };
    canvas.onkeydown = (event) => this.key(event);
  }

  end(level) { return this.levels[level + 1] ?? this.last; }

  // The first box of a level that ends behind a time.
  behind(level, when) {
    let [low, high] = [this.levels[level], this.end(level)];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (line.begin[middle] + line.length[middle] > when) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // The box of a level at a time or not a pixel beside it, -1 for none.
  at(level, when) {
    if (level < 0 || level >= this.levels.length) return -1;
    const pixel = range().length / this.canvas.clientWidth;
    const i = this.behind(level, when - pixel);
    return i < this.end(level) && line.begin[i] <= when + pixel ? i : -1;
  }

  draw() {
    const { canvas } = this, width = canvas.clientWidth, ratio = window.devicePixelRatio;
    if (!this.visible || !width) return;
    const { from, to, length } = range(), scale = width / (length || 1);
    canvas.width = width * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const ink = canvas.getContext("2d");
    ink.scale(ratio, ratio);
    ink.font = "11px ui-monospace, monospace";
    ink.textBaseline = "middle";
    const letter = ink.measureText("m").width;
    for (let level = 0; level < this.levels.length; level++) {
      let drawn = -1; // pixels of this level that have been drawn
      for (let i = this.behind(level, from); i < this.end(level) && line.begin[i] <= to; i++) {
        const id = line.function[i], hit = found[id] || i === this.chosen;
        const left = Math.max((line.begin[i] - from) * scale, 0);
        const right = Math.min((line.begin[i] + line.length[i] - from) * scale, width);
        if (right <= drawn + 0.5 && !hit) continue;
        drawn = Math.max(right, left + 1);
        this.box(ink, i, level, left, Math.max(right - left, 1), letter);
      }
    }
  }

  box(ink, i, level, left, width, letter) {
    const id = line.function[i], top = level * this.row, high = this.row - (this.row > 4 ? 1 : 0);
    const group = line.calls[i] > 1;
    ink.globalAlpha = pattern && !found[id] ? 0.35 : group ? 0.6 : 1;
    ink.fillStyle = found[id] ? "#a020a0" : colours[id];
    ink.fillRect(left, top, width - (width > 3 ? 1 : 0), high);
    ink.globalAlpha = 1;
    if (i === this.chosen && document.activeElement === this.canvas) {
      ink.strokeStyle = "#06c";
      ink.lineWidth = 2;
      ink.strokeRect(left + 1, top + 1, Math.max(width - 3, 1), high - 2);
    }
    const room = Math.floor((width - 6) / letter);
    if (room < 3 || this.row < 12) return;
    const text = group ? count(line.calls[i], "call") : labels[id];
    ink.fillStyle = found[id] ? "#fff" : group ? getComputedStyle(this.canvas).color : "#222";
    const cut = text.length > room ? `${text.slice(0, room - 1)}…` : text;
    ink.fillText(cut, left + 3, top + this.row / 2);
  }

  choose(i, zoomIn) {
    this.chosen = i;
    tellBox(i);
    const { from, to, length } = range();
    const begin = line.begin[i], end = begin + line.length[i];
    if (zoomIn) zoomTo(begin, end);
    else if (end < from || begin > to) zoomTo(begin - length / 2, begin + length / 2, false);
    else this.draw();
  }

  key(event) {
    const i = this.chosen, level = line.level[i];
    const end = line.begin[i] + line.length[i];
    const inside = (one) => one < this.end(level + 1) && line.begin[one] <= end;
    let to = -1;
    if (event.key === "ArrowLeft") to = i > this.levels[level] ? i - 1 : -1;
    else if (event.key === "ArrowRight") to = i + 1 < this.end(level) ? i + 1 : -1;
    else if (event.key === "ArrowUp") to = level ? this.around(i) : -1;
    else if (event.key === "ArrowDown" && level + 1 < this.levels.length) {
      const below = this.behind(level + 1, line.begin[i]);
      to = inside(below) ? below : -1;
    } else if (event.key === "Enter" || event.key === " ") this.choose(i, true);
    else if (event.key === "+" || event.key === "=") this.scale(0.5);
    else if (event.key === "-") this.scale(2);
    else if (event.key !== "ArrowDown") return;
    event.preventDefault();
    if (to >= 0) this.choose(to, false);
  }

  // The box that a box is inside of.
  around(i) {
    const above = line.level[i] - 1, one = this.behind(above, line.begin[i]);
    return one < this.end(above) && line.begin[one] <= line.begin[i] ? one : -1;
  }

  scale(factor) {
    const { from, to, length } = range(), i = this.chosen;
    const middle = Math.min(Math.max(line.begin[i] + line.length[i] / 2, from), to);
    zoomTo(middle - length * factor / 2, middle + length * factor / 2, false);
  }
}

let whole = { from: 0, to: 0, length: 0 }, lanes = [];

// The times that are shown.
function range() {
  const from = Number(view.from || NaN), to = Number(view.to || NaN);
  return from < to ? { from, to, length: to - from } : whole;
}

function zoomTo(from, to, step = true) {
  from = Math.max(Math.floor(from), whole.from);
  to = Math.min(Math.ceil(to), whole.to);
  const all = to <= from || (from === whole.from && to === whole.to);
  go(all ? { from: "", to: "" } : { from: String(from), to: String(to) }, step);
}

function tellBox(i) {
  const name = names[line.function[i]], spent = `${time(line.length[i])} at ${time(line.begin[i])}`;
  const group = `${count(line.calls[i], "call")} in ${spent}: too short to be told apart`;
  tell(line.calls[i] > 1 ? `${group}\nthe longest is of ${name}` : `${name}\n${spent}`);
}

function drawAxis() {
  const { from, to, length } = range(), axis = get("axis");
  let step = 10 ** Math.floor(Math.log10(Math.max(length, 1) / 4));
  while (length / step > 8) step *= length / step > 20 ? 5 : 2;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to && ticks.length < 20; at += step) {
    const tick = make("span", {}, time(Math.round(at)));
    tick.style.left = `${100 * (at - from) / (length || 1)}%`;
    ticks.push(tick);
  }
  axis.replaceChildren(...ticks);
}

function drawTimeline() {
  drawAxis();
  for (const lane of lanes) lane.draw();
}

function initTimeline() {
  const from = line.begin.reduce((least, begin) => Math.min(least, begin), Infinity);
  const to = line.begin.reduce((most, begin, i) => Math.max(most, begin + line.length[i]), 0);
  if (from < to) whole = { from, to, length: to - from };
  lanes = line.threads.map((thread, at) => new Lane(thread, at));
  const held = new Map(lanes.map((lane) => [lane.canvas, lane]));
  const watch = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      const lane = held.get(target);
      lane.visible = isIntersecting;
      if (isIntersecting) lane.draw();
      else target.width = 0; // its memory
    }
  }, { rootMargin: "200px" });
  for (const lane of lanes) {
    get("lanes").append(make("h2", {}, lane.title), lane.canvas);
    watch.observe(lane.canvas);
  }
  const groups = line.calls.filter((calls) => calls > 1);
  const calls = groups.reduce((sum, one) => sum + one, 0), notes = [];
  if (calls) {
    const drawn = `drawn as ${count(groups.length, "group")} of neighbours`;
    notes.push(`${count(calls, "call")} shorter than ${time(line.shorter)} ${drawn}`);
  }
  if (line.deeper) notes.push(`${count(line.deeper, "call")} below level ${line.depth} not drawn`);
  get("merged").textContent = notes.join("; ");
}
