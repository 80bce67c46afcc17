/** The panels below: prediction, energy by depth, refinement, and the planner's table. */
import { ofClass } from "./colours.js";
import { element, number, seconds, svg } from "./dom.js";
import type { Explorer } from "./explorer.js";
import { refine } from "./graph.js";
import { averaged, dirichletEnergy, largest, softmax } from "./measures.js";

const REPEATS = 12; // how often the depth panel repeats one layer's averaging
const MEASURED = 4e7; // multiplications up to which the averaging is repeated
const LISTED = 4; // outputs

export function drawOutput(explorer: Explorer, place: HTMLElement): void {
  const { weights, result, data, example, graph } = explorer;
  const count = weights.head.outputs;
  const perNode = weights.readout === "none";
  const node = perNode ? explorer.shownPair[0] : 0;
  if (perNode && graph.nodes === 0) return place.replaceChildren();
  const row = result.outputs.slice(node * count, (node + 1) * count);
  const target = example.targets?.[node] ?? -1;
  const named = (k: number): string => data.model.outputs[k] ?? `output ${k}`;
  const children: Node[] = [element("p", {}, perNode ? `of node ${explorer.name(node)}` : "of the graph")];
  if (count === 1) {
    children.push(element("p", {}, named(0), ": ", number(row[0], "output-value")));
  } else {
    const shares = softmax(row);
    const order = Array.from(shares, (share, k) => ({ share, k })).sort((a, b) => b.share - a.share);
    const rows = order.slice(0, LISTED).map(({ share, k }) =>
      element("tr", {}, element("td", {}, named(k), k === target ? " (true)" : ""), element("td", { class: "number" }, number(share))));
    children.push(element("table", {}, element("tbody", {}, ...rows)));
    const known = perNode && example.targets ? example.targets.slice(0, graph.nodes).flatMap((t, i) => (t < 0 ? [] : [[t, i]])) : [];
    if (known.length && explorer.choice.names === null) {
      const right = known.filter(([t, i]) => largest(result.outputs.subarray(i * count, (i + 1) * count)) === t).length;
      children.push(element("p", { id: "right" }, `${right} of ${known.length} nodes are predicted right on this graph.`));
    }
  }
  place.replaceChildren(...children);
}

export function drawDepth(explorer: Explorer, place: HTMLElement): void {
  const { graph, result, weights, state } = explorer;
  const W = weights.width;
  const bothWays = graph.symmetric(); // where edges go one way the quadratic form has no sign
  const states = [...result.traces.map(({ x }) => x), result.traces[result.traces.length - 1].result];
  const model = states.map((x) => dirichletEnergy(bothWays, x, W));
  const affordable = graph.edges * W * REPEATS < MEASURED;
  const repeated = affordable
    ? averaged(graph, explorer.trace.p, weights.heads, states[0], W, REPEATS).map((x) => dirichletEnergy(bothWays, x, W))
    : [];
  const steps = Math.max(model.length, repeated.length) - 1;
  const most = Math.max(1e-9, ...model, ...repeated);
  const [width, height, left, bottom] = [300, 150, 34, 22];
  const x = (k: number): number => left + (k / Math.max(steps, 1)) * (width - left - 10);
  const y = (energy: number): number => height - bottom - (energy / most) * (height - bottom - 12);
  const path = (values: number[]): string => values.map((value, k) => `${k ? "L" : "M"}${x(k)},${y(value)}`).join("");
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Energy by layer: ${model.map((value) => value.toFixed(3)).join(", ")}` });
  drawn.append(
    svg("path", { class: "axis", d: `M${left},8V${height - bottom}H${width - 6}`, fill: "none" }),
    svg("text", { x: 4, y: 14 }, most.toFixed(2)),
    svg("text", { x: 14, y: height - bottom }, "0"),
    svg("text", { x: left, y: height - 6 }, "layer 0"),
    svg("text", { x: width - 8, y: height - 6, "text-anchor": "end" }, String(steps)),
    svg("path", { class: "repeated", d: path(repeated) }),
    svg("path", { class: "model", d: path(model) }),
  );
  for (const [k, value] of model.entries()) drawn.append(svg("circle", { class: "dot", cx: x(k), cy: y(value), r: 3 }));
  const values = element("span", { id: "energy", "data-value": model.join(" ") }, model.map((value) => value.toFixed(3)).join(" → "));
  place.replaceChildren(
    drawn,
    element("p", {}, element("b", {}, "Solid: "), "this model, ", values, "."),
    element("p", {}, element("b", {}, "Dashed: "), `attention of layer ${state.layer + 1} alone, repeated without residuals.`),
    element("p", { class: "hint" }, "Relative Dirichlet energy tr(Xᵀ(I − Â)X) / ‖X‖²: edges taken both ways; 0 where neighbours are alike up to their degrees."),
  );
}

export function drawColours(explorer: Explorer, place: HTMLElement, slider: HTMLInputElement): void {
  const rounds = refine(explorer.graph);
  const last = rounds.length - 1;
  slider.max = String(last);
  const round = Math.min(explorer.state.round, last);
  slider.value = String(round);
  slider.disabled = last === 0;
  const counts = rounds.map((colours) => new Set(colours).size);
  const swatches = element("p", {});
  for (let k = 0; k < Math.min(counts[round], 24); k++) {
    const swatch = element("span", { "aria-hidden": "true" }, "● ");
    swatch.style.color = ofClass(k);
    swatches.append(swatch);
  }
  place.replaceChildren(
    element("p", {}, "After round ", String(round), ": ", element("b", { id: "classes" }, String(counts[round])), ` colours for ${explorer.graph.nodes} nodes.`),
    swatches,
    element("p", {}, `By round: ${counts.join(" → ")}; stable after ${last}.`),
    element("p", { class: "hint" }, "Nodes of one colour look alike to every message-passing network that begins with equal features."),
  );
}

export function drawPlan(explorer: Explorer, place: HTMLElement): void {
  const { candidates, interpolated } = explorer.plan();
  const rows = candidates.map(({ backend, seconds: time, refusal }, k) =>
    element("tr", k === 0 ? { class: "chosen" } : {},
      element("td", {}, `${k === 0 ? "→ " : ""}${backend}`),
      element("td", time === null ? {} : { class: "number" }, time === null ? `refuses: ${refusal ?? ""}` : seconds(time))));
  const { nodes, edges } = explorer.graph;
  const pairs = Math.max(nodes * nodes, 1);
  place.replaceChildren(
    element("p", {}, `${nodes} nodes, ${edges} edges, ${((100 * edges) / pairs).toFixed(1)} % of all pairs`),
    element("table", {}, element("tbody", {}, ...rows)),
    element("p", { class: "hint" }, interpolated
      ? "Interpolated between the planner’s predictions for lists of fewer and of more edges."
      : "Predicted by the planner for this graph, on the machine that made the page."),
  );
}
