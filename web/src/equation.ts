/** The equation of attention with the numbers of the pair that is shown written into it. */
import { element, number, shown, sub } from "./dom.js";
import type { Explorer } from "./explorer.js";

const WRITTEN = 4; // channels that are written out
const LISTED = 40; // senders that are listed

export function drawEquation(explorer: Explorer, place: HTMLElement): void {
  const { graph, weights, trace, state } = explorer;
  if (graph.nodes === 0) return place.replaceChildren("This graph has no nodes.");
  const [i, j] = explorer.shownPair;
  const { heads: H, keyHeads: G, channels: C } = weights;
  const h = state.head;
  const shared = Math.floor((h * G) / H);
  const q = trace.q.subarray((i * H + h) * C, (i * H + h + 1) * C);
  const k = trace.k.subarray((j * G + shared) * C, (j * G + shared + 1) * C);
  const edge = graph.edge(i, j);
  const s = q.reduce((sum, value, c) => sum + value * k[c], 0) / Math.sqrt(C);
  const first = graph.offsets[i];
  const count = graph.offsets[i + 1] - first;
  const total = Array.from({ length: count }, (_, e) => Math.exp(trace.s[(first + e) * H + h])).reduce((a, b) => a + b, 0);
  const head = H > 1 ? `, head ${h + 1}` : "";
  const lines: (Node | string)[][] = [
    [
      element("span", {}, "Receiver i = "),
      element("b", {}, explorer.name(i)),
      ", sender j = ",
      element("b", { class: "chosen" }, explorer.name(j)),
      ` (layer ${state.layer + 1}${head})`,
    ],
    [sub("s", "ij"), " = ", sub("q", "i"), "·", sub("k", "j"), " / √d = ", products(q, k), ` / √${C} = `, number(s, "s-value")],
  ];
  if (edge < 0) {
    const zero = number(0, "p-value");
    lines.push([sub("p", "ij"), " = ", zero, ": j is no sender of i in this graph. Draw the edge, and the other weights shrink."]);
  } else {
    const p = explorer.weight(edge);
    lines.push([
      sub("p", "ij"), " = exp ", sub("s", "ij"), " / Σ", element("sub", {}, "j′∈N(i)"), " exp ", sub("s", "ij′"),
      ` = ${shown(Math.exp(s))} / ${shown(total)} = `, number(p, "p-value"),
    ]);
    const v = trace.v.subarray((j * G + shared) * C, (j * G + shared + 1) * C);
    lines.push([
      "its part of ", sub("y", "i"), ": ", sub("p", "ij"), " ", sub("v", "j"), ` = ${shown(p)} × ${vector(v)} = `,
      element("span", { id: "part", "data-value": v.map((value) => p * value).join(" ") }, vector(v.map((value) => p * value))),
    ]);
  }
  const y = trace.y.subarray((i * H + h) * C, (i * H + h + 1) * C);
  lines.push([
    sub("y", "i"), " = Σ", element("sub", {}, "j∈N(i)"), " ", sub("p", "ij"), " ", sub("v", "j"), " = ",
    element("span", { id: "y", "data-value": y.join(" ") }, vector(y)),
    count === 0 ? ": no senders, so nothing" : "",
  ]);
  const W = weights.width;
  const out = trace.result.subarray(i * W, (i + 1) * W);
  lines.push([
    weights.stages[state.layer].order === "pre"
      ? "then x + W_O [y¹ ‖ … ‖ yᴴ], and x + MLP(norm x): "
      : "then norm(x + W_O [y¹ ‖ … ‖ yᴴ]), and norm(x + MLP x): ",
    sub("x", "i"), "′ = ", element("span", { id: "x", "data-value": out.join(" ") }, vector(out)),
  ]);
  place.replaceChildren(
    element("p", { class: "formula" }, sub("y", "i"), " = Σ", element("sub", {}, "j∈N(i)"), " softmax", element("sub", {}, "j"),
      "(", sub("q", "i"), "·", sub("k", "j"), " / √d) ", sub("v", "j")),
    ...lines.map((line) => element("div", { class: "line" }, ...line)),
    senders(explorer, i, j),
  );
}

function products(q: Float64Array, k: Float64Array): string {
  const terms = Array.from(q.subarray(0, WRITTEN), (value, c) => `${shown(value)}·${shown(k[c]).replace(/^−.*/, "($&)")}`);
  return `(${terms.join(" + ")}${q.length > WRITTEN ? " + …" : ""})`;
}

function vector(values: Float64Array): string {
  const written = Array.from(values.subarray(0, WRITTEN), shown);
  return `[${written.join(", ")}${values.length > WRITTEN ? ", …" : ""}]`;
}

/** All senders of a receiver, the strongest first. */
function senders(explorer: Explorer, i: number, j: number): HTMLElement {
  const { graph, trace, weights, state } = explorer;
  const rows = graph
    .sendersOf(i)
    .map((sender, at) => ({ sender, edge: graph.offsets[i] + at }))
    .sort((a, b) => explorer.weight(b.edge) - explorer.weight(a.edge));
  const head = element("tr", {}, element("th", { scope: "col" }, "j"),
    element("th", { scope: "col", class: "number" }, sub("s", "ij")), element("th", { scope: "col", class: "number" }, sub("p", "ij")));
  const body = rows.slice(0, LISTED).map(({ sender, edge }) =>
    element("tr", sender === j ? { class: "chosen" } : {},
      element("td", {}, explorer.name(sender)),
      element("td", { class: "number" }, shown(trace.s[edge * weights.heads + state.head])),
      element("td", { class: "number" }, shown(explorer.weight(edge)))));
  const rest = rows.length > LISTED ? [element("p", { class: "hint" }, `and ${rows.length - LISTED} more`)] : [];
  const region = { class: "senders", tabindex: "0", role: "region", "aria-label": "Senders of i" };
  return element("div", region, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)), ...rest);
}
