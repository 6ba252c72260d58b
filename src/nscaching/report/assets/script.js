"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const tip = document.getElementById("tip");

  function draw(parent, name, attributes) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent.append(element);
  }

  function showTip(text, event) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    const top = event.clientY + 14 + box.height > innerHeight ? event.clientY - 14 - box.height : event.clientY + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }

  function place(svg, event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [at.x, at.y];
  }

  // Whatever is pointed at: move shows it, leave forgets it.
  function onPoint(svg, move, leave) {
    for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, move);
    for (const kind of ["pointerleave", "pointercancel"]) svg.addEventListener(kind, leave);
  }

  function nearest(points, measure) {
    let best = -1, least = Infinity;
    points.forEach((point, index) => {
      const distance = measure(point);
      if (distance < least) [best, least] = [index, distance];
    });
    return [best, least];
  }

  // Light and dark ---------------------------------------------------------------------------------
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const remember = (theme) => { try { localStorage.setItem("nscaching-theme", theme); } catch { /* a file may have no storage */ } };
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Show in ${isDark() ? "light" : "dark"} colours`); };
  try { const kept = localStorage.getItem("nscaching-theme"); if (kept) root.dataset.theme = kept; } catch { /* as above */ }
  button.hidden = false;
  name();
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; remember(root.dataset.theme); name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);

  // Charts -----------------------------------------------------------------------------------------
  for (const svg of document.querySelectorAll(".chart > svg")) {
    const series = JSON.parse(svg.dataset.points);
    const pointer = svg.querySelector(".pointer");
    const bottom = svg.viewBox.baseVal.height - 38;
    onPoint(svg, (event) => {
      const [x] = place(svg, event);
      const chosen = series.map((line) => nearest(line.at, (at) => Math.abs(at[0] - x))[0]);
      const [lead] = nearest(series.map((line, n) => line.at[chosen[n]]), (at) => Math.abs(at[0] - x));
      const across = series[lead].at[chosen[lead]][0];
      pointer.replaceChildren();
      draw(pointer, "line", { x1: across, x2: across, y1: 8, y2: bottom });
      const words = [series[lead].x[chosen[lead]]];
      series.forEach((line, n) => {
        const at = line.at[chosen[n]];
        draw(pointer, "circle", { cx: at[0], cy: at[1], r: 3 });
        words.push(series.length > 1 ? `${line.label}: ${line.y[chosen[n]]}` : line.y[chosen[n]]);
      });
      showTip(words.join("\n"), event);
    }, () => { pointer.replaceChildren(); tip.hidden = true; });
  }

  // The map ----------------------------------------------------------------------------------------
  for (const figure of document.querySelectorAll(".map")) {
    const svg = figure.querySelector("svg");
    const { names, at, types, type, degree } = JSON.parse(figure.dataset.points);
    const pointer = figure.querySelector(".pointer"), found = figure.querySelector(".found");
    const forget = () => { pointer.replaceChildren(); tip.hidden = true; };
    onPoint(svg, (event) => {
      const [x, y] = place(svg, event);
      const [index, distance] = nearest(at, (point) => (point[0] - x) ** 2 + (point[1] - y) ** 2);
      const reach = 24 * svg.viewBox.baseVal.width / svg.clientWidth;
      if (distance > reach ** 2) return forget();
      pointer.replaceChildren();
      draw(pointer, "circle", { cx: at[index][0], cy: at[index][1], r: 5 });
      const facts = `${degree[index].toLocaleString("en")} training ${degree[index] === 1 ? "fact" : "facts"}`;
      showTip(`${names[index]}\n${types[type[index]]}, ${facts}`, event);
    }, forget);
    const input = figure.querySelector("input"), count = figure.querySelector("output");
    figure.querySelector(".find").hidden = false;
    const folded = names.map((each) => each.toLowerCase());
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      found.replaceChildren();
      count.textContent = "";
      if (!wanted) return;
      const hits = folded.flatMap((each, index) => each.includes(wanted) ? [index] : []);
      for (const index of hits) draw(found, "circle", { cx: at[index][0], cy: at[index][1], r: 7 });
      count.textContent = hits.length === 1 ? names[hits[0]] : `${hits.length} found`;
    });
  }

  // Commands to copy -------------------------------------------------------------------------------
  for (const copy of document.querySelectorAll(".copy")) {
    copy.addEventListener("click", async () => {
      const code = copy.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }
})();
