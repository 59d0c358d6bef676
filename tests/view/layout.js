// What cannot be read on a page as it is shown: labels that cover each other or are cut, what is
// wider than the window, and text too pale for its ground. Gives a list of complaints.
(() => {
  const found = [];
  const say = (what, text) => found.push(what + ": " + JSON.stringify(text.trim().slice(0, 60)));
  const box = (element) => element.getBoundingClientRect();
  const seen = (element) => element.getClientRects().length > 0;

  // Labels of pictures. A pixel is rounding.
  for (const svg of document.querySelectorAll("svg")) {
    if (!seen(svg)) continue;
    const whole = box(svg);
    const all = [...svg.querySelectorAll("text")];
    const texts = all.filter((text) => text.textContent && seen(text));
    const boxes = texts.map((text) => ({ text, box: box(text) }));
    for (const { text, box: one } of boxes) {
      if (one.left < whole.left - 1 || one.right > whole.right + 1 ||
          one.top < whole.top - 2 || one.bottom > whole.bottom + 2) {
        say("cut by its picture " + svg.id, text.textContent);
      }
      // A label in a box of its own is within it.
      const group = text.closest("g");
      const rects = group ? [...group.querySelectorAll(":scope > rect")] : [];
      const filled = text.getAttribute("class") === null && rects.length === 1;
      if (filled && one.right > box(rects[0]).right + 2) {
        say("wider than its box in " + svg.id, text.textContent);
      }
    }
    boxes.sort((a, b) => a.box.top - b.box.top);
    boxes.forEach(({ text, box: one }, index) => {
      for (const { text: other, box: two } of boxes.slice(index + 1)) {
        if (two.top > one.bottom) break;
        // A line of text is taller than its letters.
        const tall = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        if (tall > 3 && wide > 1) {
          say("covered in " + svg.id, text.textContent + " | " + other.textContent);
        }
      }
    });
    // Nor do the boxes of numbers, which are wider than these.
    const dots = [...svg.querySelectorAll("rect.dot")].map(box);
    dots.forEach((one, index) => {
      for (const two of dots.slice(index + 1)) {
        const tall = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        if (tall > 1 && wide > 1) say("numbers covered in " + svg.id, String(index));
      }
    });
    // They hide no cell of a map.
    const cells = [...svg.querySelectorAll("rect[fill-opacity]:not(.dot)")].map(box);
    for (const one of dots) {
      const hides = (cell) => Math.min(one.bottom, cell.bottom) - Math.max(one.top, cell.top) > 1 &&
        Math.min(one.right, cell.right) - Math.max(one.left, cell.left) > 1;
      if (cells.some(hides)) say("a number hides a cell in", svg.id);
    }
    // A dashed line that marks a latency goes through no label, nor does one from a number down.
    for (const line of svg.querySelectorAll("line.mark, line.lead")) {
      const mark = box(line);
      for (const { text, box: one } of boxes) {
        const across = mark.left > one.left + 1 && mark.left < one.right - 1;
        if (across && mark.top < one.bottom - 3 && mark.bottom > one.top + 3) {
          say("crossed in " + svg.id, text.textContent);
        }
      }
    }
  }

  // A scale of latencies says what it is with two labels at least.
  for (const [id, left] of [["heat", true], ["heat-narrow", true], ["histogram", false],
    ["histogram-narrow", false]]) {
    const svg = document.getElementById(id);
    if (!svg || !seen(svg)) continue;
    const units = [...svg.querySelectorAll("text.t")].filter((text) =>
      /^[\d.,]+\s(ns|us|ms|s|min .*)$/.test(text.textContent) &&
      (text.getAttribute("text-anchor") === "end") === left);
    if (units.length < 2) say("a scale without labels", id);
  }
  const timeline = document.getElementById("timeline");
  const latencies = timeline && timeline.dataset.latencies;
  if (latencies && latencies.split(" ").length < 2) say("a scale without labels", "timeline");

  // Nothing is wider than the window but what can be scrolled, which shows that it can.
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 1) say("wider than the window", wide + " pixels");
  for (const picture of document.querySelectorAll(".picture, canvas")) {
    if (seen(picture) && box(picture).right > innerWidth + 1) say("cut by the window", picture.id);
  }

  // Nor is the table cut that is the bar's legend.
  for (const table of document.querySelectorAll("table.figures")) {
    if (seen(table) && box(table).right > box(table.parentElement).right + 1) {
      say("cut", table.textContent);
    }
  }
  // The chain of causes is one row, or one below the other.
  for (const chain of document.querySelectorAll(".chain")) {
    const links = [...chain.children].map(box);
    const spread = (side) => new Set(links.map((link) => Math.round(link[side]))).size > 1;
    if (spread("left") && spread("top")) say("the chain is broken", chain.textContent);
  }
  // No line ends between a figure and its unit.
  for (const figure of document.querySelectorAll(".figure")) {
    const lines = new Set([...figure.getClientRects()].map((line) => Math.round(line.bottom)));
    if (lines.size > 1 && !figure.querySelector("svg")) say("torn apart", figure.textContent);
  }

  // Contrast of text and ground: WCAG 2, AA. Pictures' own colours have a test in the palette.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const pale = new Set();
  const of = (element, colour) => {
    const both = [luminance(channels(colour)), luminance(ground(element))].sort((a, b) => b - a);
    const contrast = (both[0] + 0.05) / (both[1] + 0.05);
    if (contrast < 4.5) pale.add(element.localName + "." + element.getAttribute("class"));
  };
  for (const element of document.querySelectorAll("body *:not(script):not(svg *)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (own && seen(element)) of(element, getComputedStyle(element).color);
  }
  for (const text of document.querySelectorAll("svg text.t")) {
    // What stands in a dot has the dot's ground.
    if (seen(text) && !text.previousElementSibling?.matches(".dot")) {
      of(text.closest("svg").parentElement, getComputedStyle(text).fill);
    }
  }
  for (const element of pale) say("too pale", element);
  return found.slice(0, 20);
})()
