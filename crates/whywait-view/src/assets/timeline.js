"use strict";
// All slow requests as dots: time across, latency (logarithmic) up. Zoom, pan, choose one.
(() => {
  const section = document.getElementById("timeline");
  if (!section) return;
  const canvas = section.querySelector("canvas");
  const chosen = section.querySelector(".chosen");
  const split = section.querySelector(".split");
  const ends = Math.max(+section.dataset.ends, 1);
  const parts = section.dataset.parts.split(";").map((part) => part.split("|"));
  const requests = section.dataset.requests.split(";").map((row) => {
    const [at, took, id, shares, finding] = row.split(" ");
    const time = shares ? shares.split(",").map((one) => one.split(":").map(Number)) : [];
    return { at: +at, took: Math.max(+took, 1), id, time, finding };
  });
  const HEIGHT = 240, LEFT = 64, TOP = 10, BOTTOM = 22, NEAR = 14;
  const RADIUS = requests.length > 300 ? 3.5 : 5;
  const logs = requests.map((one) => Math.log10(one.took));
  let low = Infinity, high = -Infinity;
  for (const log of logs) {
    low = Math.min(low, log);
    high = Math.max(high, log);
  }
  low -= 0.1;
  high += 0.1;
  // The labels of the scale of latencies.
  const latencies = section.dataset.latencies.split(" ").map(Number);
  let from = 0, to = ends, at = -1, width = 0;
  const least = Math.max(ends / 100000, 10);

  const duration = (us) => {
    if (us >= 120e6) {
      const s = Math.round(us / 1e6);
      return Math.floor(s / 60) + "\u00a0min " + (s % 60) + "\u00a0s";
    }
    for (const [unit, name] of [[1e6, "s"], [1e3, "ms"]]) {
      if (us >= unit) {
        const value = us / unit;
        const text = value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
        // One that is exact has no zeros behind it, as in the page's own figures.
        return (Number(text) === value ? value : text) + "\u00a0" + name;
      }
    }
    return us > 0 ? Math.round(us) + " us" : "0 ns";
  };
  const x = (us) => LEFT + ((us - from) / (to - from)) * (width - LEFT - 8);
  const y = (log) => TOP + ((high - log) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const colour = (one) => (one.time.length ? parts[one.time[0][0]][1] : "#808080");

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map((v) => style.getPropertyValue(v));
    const scale = devicePixelRatio || 1;
    width = canvas.clientWidth;
    canvas.width = width * scale;
    canvas.height = HEIGHT * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    let last = Infinity;
    for (const tick of latencies) {
      const at = y(Math.log10(tick));
      if (last - at < 14) continue;
      last = at;
      pen.fillStyle = line;
      pen.fillRect(LEFT, last, width - LEFT, 1);
      pen.fillStyle = soft;
      pen.textAlign = "end";
      pen.fillText(duration(tick), LEFT - 8, last);
    }
    // The scale of time.
    const most = Math.max(3, Math.floor((width - LEFT) / 90));
    const ten = 10 ** Math.floor(Math.log10((to - from) / most));
    const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => (to - from) / n <= most);
    pen.textAlign = "center";
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      pen.fillStyle = line;
      pen.fillRect(x(tick), TOP, 1, HEIGHT - TOP - BOTTOM);
      pen.fillStyle = soft;
      const text = tick === 0 ? "0" : duration(tick);
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(x(tick), width - half), HEIGHT - 8);
    }
    pen.globalAlpha = requests.length > 300 ? 0.7 : 0.9;
    requests.forEach((one, index) => {
      if (one.at < from || one.at > to) return;
      pen.fillStyle = colour(one);
      pen.beginPath();
      pen.arc(x(one.at), y(logs[index]), RADIUS, 0, 7);
      pen.fill();
    });
    pen.globalAlpha = 1;
    if (at >= 0 && requests[at].at >= from && requests[at].at <= to) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x(requests[at].at), y(logs[at]), RADIUS + 3, 0, 7);
      pen.stroke();
    }
  };

  // Those that were there already have no time in it.
  const began = (at) => at > 0 ? duration(at) + " into the recording" : "from before the recording";

  const choose = (index) => {
    at = index;
    const one = requests[at];
    const said = one.time.map(([part, of]) => Math.round(of / 10) + "\u00a0% " + parts[part][0]);
    chosen.textContent = duration(one.took) + ", " + began(one.at) + ": " +
      said.join("; ") + (one.finding ? "; of finding no. " + one.finding : "") +
      ". Step by step: whywait report RECORDING --request " + one.id;
    split.replaceChildren(...one.time.map(([part, of]) => {
      const piece = document.createElement("span");
      piece.style.width = of / 10 + "%";
      piece.style.background = parts[part][1];
      piece.title = parts[part][0];
      return piece;
    }));
    // Into sight, if it is not.
    if (one.at < from || one.at > to) move(one.at - (from + to) / 2);
    draw();
  };
  const view = (start, span) => {
    span = Math.min(Math.max(span, least), ends);
    from = Math.min(Math.max(start, 0), ends - span);
    to = from + span;
    draw();
  };
  const move = (by) => view(from + by, to - from);
  const zoom = (times, around) => {
    const share = (around - from) / (to - from);
    const span = Math.min(Math.max((to - from) * times, least), ends);
    view(around - share * span, span);
  };

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const by = event.clientX - drag.x;
    drag.moved ||= Math.abs(by) > 3;
    if (drag.moved) view(drag.from - (by / (width - LEFT)) * (to - from), to - from);
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = drag && drag.moved;
    drag = null;
    if (moved) return;
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.x, event.clientY - box.y];
    let best = -1, nearest = NEAR;
    requests.forEach((one, index) => {
      const far = Math.hypot(x(one.at) - px, y(logs[index]) - py);
      if (one.at >= from && one.at <= to && far < nearest) [best, nearest] = [index, far];
    });
    if (best >= 0) choose(best);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const over = event.clientX - canvas.getBoundingClientRect().x - LEFT;
    zoom(event.deltaY > 0 ? 1.25 : 0.8, from + (over / (width - LEFT)) * (to - from));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      ArrowRight: () => choose(Math.min(at + 1, requests.length - 1)),
      ArrowLeft: () => choose(Math.max(at - 1, 0)),
      "+": () => zoom(0.5, (from + to) / 2),
      "-": () => zoom(2, (from + to) / 2),
      Escape: () => view(0, ends),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  for (const button of section.querySelectorAll("button")) {
    const times = +button.dataset.zoom;
    button.addEventListener("click", () => (times ? zoom(times, (from + to) / 2) : view(0, ends)));
  }
  section.hidden = false;
  section.querySelector(".tools").hidden = false;
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let slowest = 0;
  requests.forEach((one, index) => {
    if (one.took > requests[slowest].took) slowest = index;
  });
  draw();
  choose(slowest);
})();
