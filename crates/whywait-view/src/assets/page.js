"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";
  const LEAST = 8;
  const HELP = "Point at a box to see its time; click to zoom in, press Escape to zoom out.";
  // How wide a text is at most, as the page's own pictures reckon.
  const letter = (c) => {
    if (/[ijl.,:;'|! ()[\]{}ftr/]/.test(c)) return 4.9;
    if (/[mwMW%@]/.test(c) || c > "~") return 11;
    return /[A-Z]/.test(c) ? 8 : 7.1;
  };
  const wide = (letters) => letters.reduce((sum, c) => sum + letter(c), 6);

  // A flame graph: zoom by click or Enter, find by name, walk by arrow keys.
  for (const svg of all("svg.flame")) {
    const WIDTH = svg.viewBox.baseVal.width;
    const part = svg.closest("details");
    const info = part.querySelector(".detail");
    const tools = part.querySelector(".tools");
    const found = tools.querySelector(".found");
    const total = (() => {
      const box = all("g.b", svg).map((g) => +g.querySelector("rect").getAttribute("y"));
      return Math.min(...box);
    })();
    const boxes = all("g.b", svg).map((g) => {
      const rect = g.querySelector("rect");
      const [name, what] = g.querySelector("title").textContent.split("\n");
      const text = g.querySelector("text");
      return {
        g, rect, name, what, text,
        ink: text ? text.getAttribute("fill") : "#000000",
        x: +rect.getAttribute("x"),
        width: +rect.getAttribute("width"),
        y: +rect.getAttribute("y"),
      };
    });
    const of = new Map(boxes.map((box) => [box.g, box]));
    let at = null, zoomed = null;

    const draw = (box, x, width) => {
      box.rect.setAttribute("x", x.toFixed(2));
      box.rect.setAttribute("width", Math.max(width, 0.3).toFixed(2));
      const letters = [...box.name];
      let room = letters.length;
      let shown = letters;
      while (room >= LEAST && wide(shown) > width) {
        room -= 1;
        shown = [...letters.slice(0, room - 1), "\u2026"];
      }
      if (wide(shown) > width) shown = [];
      if (!box.text && shown.length > 0) {
        box.text = document.createElementNS(SVG, "text");
        box.text.setAttribute("y", box.y + 12.5);
        box.text.setAttribute("fill", box.ink);
        box.g.append(box.text);
      }
      if (box.text) {
        box.text.setAttribute("x", (x + 3).toFixed(2));
        box.text.textContent = shown.join("");
      }
    };
    const within = (box, other) =>
      other.x >= box.x - 0.01 && other.x + other.width <= box.x + box.width + 0.51;
    const zoom = (box) => {
      zoomed = box && box.width < WIDTH - 2 ? box : null;
      const from = zoomed ? zoomed.x : 0;
      const scale = zoomed ? WIDTH / zoomed.width : 1;
      for (const one of boxes) {
        const above = zoomed && one.y < zoomed.y && within(one, zoomed);
        const below = !zoomed || (one.y >= zoomed.y && within(zoomed, one));
        one.g.classList.toggle("above", Boolean(above));
        one.g.classList.toggle("out", !above && !below);
        if (above) draw(one, 0, WIDTH - 0.5);
        else if (below) draw(one, (one.x - from) * scale, one.width * scale);
      }
    };
    const show = (box) => {
      info.textContent = box ? box.name + " \u2014 " + box.what : HELP;
    };
    const go = (box) => {
      if (!box) return;
      if (at) at.g.classList.remove("at");
      at = box;
      at.g.classList.add("at");
      show(at);
    };
    const seen = (box) => !box.g.classList.contains("out");
    const row = (y) => boxes.filter((b) => b.y === y && seen(b)).sort((a, b) => a.x - b.x);
    const STEP = 18;
    const keys = {
      ArrowDown: () => row(at.y + STEP).find((box) => within(at, box)),
      ArrowUp: () => row(at.y - STEP).find((box) => within(box, at)),
      ArrowRight: () => row(at.y).find((box) => box.x > at.x),
      ArrowLeft: () => row(at.y).filter((box) => box.x < at.x).pop(),
    };

    show(null);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("click", (event) => {
      const box = of.get(event.target.closest("g.b"));
      if (!box) return;
      go(box);
      zoom(box === zoomed ? null : box);
    });
    svg.addEventListener("mouseover", (event) => show(of.get(event.target.closest("g.b")) || at));
    svg.addEventListener("keydown", (event) => {
      if (!at) at = row(total)[0] || null;
      if (!at) return;
      if (keys[event.key]) go(keys[event.key]());
      else if (event.key === "Enter") zoom(at === zoomed ? null : at);
      else if (event.key === "Escape") zoom(null);
      else return;
      event.preventDefault();
    });
    tools.hidden = false;
    tools.querySelector("button").addEventListener("click", () => zoom(null));
    tools.querySelector("input").addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      let count = 0;
      for (const box of boxes) {
        const hit = box.name.toLowerCase().includes(wanted);
        box.g.classList.toggle("miss", wanted !== "" && !hit);
        if (hit) count += 1;
      }
      // Of the two pictures one is seen.
      if (svg.getClientRects().length === 0) return;
      found.textContent = wanted === "" ? "" : count + " of " + boxes.length + " boxes";
    });
  }

  // Figures as whywait-words writes them.
  const duration = (ns) => {
    for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
      if (ns >= unit) {
        const value = ns / unit;
        return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + name;
      }
    }
    return Math.round(ns) + " ns";
  };
  const percent = (share) => (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";

  // What a fix saves that takes away only a part of the fault.
  for (const saving of all(".saving")) {
    const { saved, total, each, requests } = saving.dataset;
    const says = saving.querySelector(".says");
    const whole = says.textContent;
    const rects = all("rect.saved", saving);
    const texts = all("svg text", saving).map((text) => [text, text.textContent]);
    const slider = saving.querySelector(".slider");
    slider.hidden = false;
    slider.querySelector("input").addEventListener("input", (event) => {
      const part = event.target.value / 100;
      const ns = saved * part;
      slider.querySelector("output").textContent = event.target.value + " %";
      for (const rect of rects) {
        const width = rect.ownerSVGElement.viewBox.baseVal.width;
        rect.setAttribute("width", ((width * ns) / total).toFixed(2));
      }
      for (const [text, said] of texts) text.textContent = part === 1 ? said : "";
      if (part === 1) {
        says.textContent = whole;
        return;
      }
      const share = percent(ns / total);
      const most = each ? ", at most " + duration(each * part) + " on each" : "";
      says.textContent = "a fix saves at most " + duration(ns) + " over " +
        Number(requests).toLocaleString("en") + (requests === "1" ? " request" : " requests") +
        most + ", " + share +
        " of all requests' time";
    });
  }

  // The report as text, to the clipboard; where that is not allowed, it is selected.
  for (const button of all("button.copy")) {
    const text = button.closest("details").querySelector("pre");
    button.closest(".tools").hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = "Selected: copy it";
      }
    });
  }

  // On paper everything is open.
  addEventListener("beforeprint", () => {
    for (const part of all("details")) {
      part.removeAttribute("name");
      part.open = true;
    }
  });
})();
