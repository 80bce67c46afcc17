/** What is measured on a graph beside the forward pass: energy by depth, predicted times, classes. */
import type { Candidate, Prediction } from "./data.js";
import type { Graph } from "./graph.js";

/**
 * How much neighbours differ, between 0 and 2: tr(Xᵀ (I − Â) X) / ‖X‖², Â = D̃^−½ (A + I) D̃^−½, where d̃_i counts
 * the senders of i and i itself.
 */
export function dirichletEnergy(graph: Graph, x: Float64Array, width: number): number {
  const { nodes } = graph;
  const senders = Array.from({ length: nodes }, (_, i) => [...graph.sendersOf(i).filter((j) => j !== i), i]);
  const root = senders.map((list) => 1 / Math.sqrt(list.length));
  let energy = 0;
  let square = 0;
  for (let i = 0; i < nodes; i++)
    for (let c = 0; c < width; c++) {
      const own = x[i * width + c];
      let mean = 0;
      for (const j of senders[i]) mean += root[i] * root[j] * x[j * width + c];
      energy += own * (own - mean);
      square += own * own;
    }
  return square > 0 ? energy / square : 0;
}

/** X, P X, P² X, ...: the attention of a layer, the mean of its heads, applied `times` times without residual. */
export function averaged(graph: Graph, p: Float64Array, heads: number, x: Float64Array, width: number, times: number): Float64Array[] {
  const states = [x];
  for (let t = 0; t < times; t++) {
    const before = states[t];
    const after = new Float64Array(graph.nodes * width);
    for (let i = 0; i < graph.nodes; i++)
      for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; e++) {
        let share = 0;
        for (let h = 0; h < heads; h++) share += p[e * heads + h] / heads;
        for (let c = 0; c < width; c++) after[i * width + c] += share * before[graph.senders[e] * width + c];
      }
    states.push(after);
  }
  return states;
}

/** Each backend's time on an edited graph: between the predictions for fewer and for more edges, on logarithmic axes. */
export function predicted(prediction: Prediction, edges: number): Candidate[] {
  const known = prediction.edges;
  const place = Math.min(Math.max(edges, known[0]), known[known.length - 1]);
  let k = 0;
  while (k < known.length - 2 && known[k + 1] < place) k++;
  const left = Math.log(known[k]);
  const share = known.length > 1 ? (Math.log(place) - left) / (Math.log(known[k + 1]) - left) : 0;
  return Object.entries(prediction.seconds)
    .map(([backend, seconds]) => {
      const low = Math.log(seconds[k]);
      const high = Math.log(seconds[Math.min(k + 1, seconds.length - 1)]);
      return { backend, seconds: Math.exp(low + share * (high - low)), refusal: null };
    })
    .sort((a, b) => a.seconds - b.seconds);
}

export function softmax(row: Float64Array): Float64Array {
  const largest = row.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = row.map((t) => Math.exp(t - largest));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((t) => t / total);
}

export function largest(row: Float64Array): number {
  let best = 0;
  for (let c = 1; c < row.length; c++) if (row[c] > row[best]) best = c;
  return best;
}
