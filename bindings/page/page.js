// Adds a cursor with values to the charts. Without it the page says the same, in its tables.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  function size(bytes) {
    const mib = bytes / 1048576;
    return mib >= 1024 ? (mib / 1024).toFixed(2) + " GiB" : Math.round(mib) + " MiB";
  }

  function attach(box, chart, readout) {
    const svg = box.querySelector("svg");
    const view = svg.viewBox.baseVal;
    const [left, right] = chart.margins;
    const cursor = document.createElementNS(svg.namespaceURI, "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", 18);
    cursor.setAttribute("y2", view.height - 30);
    cursor.style.display = "none";
    svg.append(cursor);
    const hint = "Move over the chart, or use the arrow keys, to read values.";
    let index = -1;

    function show(next) {
      index = Math.max(0, Math.min(chart.time.length - 1, next));
      const x = left + (view.width - left - right) * chart.time[index] / chart.end;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.style.display = "";
      const values = chart.lines.map((line) => line.name + " " + size(line.bytes[index]));
      const time = chart.time[index];
      const when = chart.end < 1 ? (time * 1000).toFixed(2) + " ms" : time.toFixed(2) + " s";
      readout.textContent = when + ": " + values.join(", ");
    }

    function hide() {
      cursor.style.display = "none";
      readout.textContent = hint;
    }

    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Chart; arrow keys read its values");
    box.addEventListener("pointermove", (event) => {
      const bounds = svg.getBoundingClientRect();
      const x = (event.clientX - bounds.left) / bounds.width * view.width;
      const seconds = (x - left) / (view.width - left - right) * chart.end;
      show(Math.round(seconds / chart.end * chart.time.length));
    });
    box.addEventListener("pointerleave", hide);
    box.addEventListener("blur", hide);
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: 20, PageDown: -20 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      show(index < 0 ? 0 : index + step);
    });
    hide();
  }

  for (const box of document.querySelectorAll("[data-chart]")) {
    const name = box.dataset.chart;
    attach(box, data[name], document.getElementById(name + "-values"));
  }
})();
