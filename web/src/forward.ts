/** The model's forward pass in float64: every number that the page shows is computed here. */
import { floats, type Block, type Linear, type Model, type Norm } from "./data.js";
import type { Graph } from "./graph.js";

interface Map_ {
  weight: Float64Array;
  bias: Float64Array | null;
  inputs: number;
  outputs: number;
}

interface Scaling {
  kind: Norm["kind"];
  eps: number;
  weight: Float64Array | null;
  bias: Float64Array | null;
}

interface Stage {
  order: Block["order"];
  norms: [Scaling, Scaling];
  projection: Map_;
  output: Map_;
  feedForward: { gated: boolean; hidden: number; activation: (t: number) => number; up: Map_; down: Map_ };
}

/** A model whose weights are unpacked. */
export interface Weights {
  width: number;
  heads: number;
  keyHeads: number;
  channels: number;
  stages: Stage[];
  norm: Scaling;
  readout: Model["readout"];
  head: Map_;
}

/** All that a block computes, node-major: q is [N, H, C], a score or weight has the number edge * H + head. */
export interface Trace {
  x: Float64Array; // what the block reads [N, width]
  q: Float64Array;
  k: Float64Array;
  v: Float64Array;
  s: Float64Array; // scores [E, H]
  p: Float64Array; // their softmax over the senders of each receiver [E, H]
  y: Float64Array; // Σ_j p_ij v_j [N, H, C]
  attended: Float64Array; // y W_O + b [N, width]
  result: Float64Array; // what the block leaves [N, width]
}

export interface Result {
  traces: Trace[];
  outputs: Float64Array; // [N, outputs], or [1, outputs] with a readout
}

export function unpackModel(model: Model): Weights {
  const { width } = model;
  const stages = model.blocks.map((block): Stage => {
    const { gated, hidden, activation, up, down } = block.feedForward;
    return {
      order: block.order,
      norms: [scaling(block.norms[0]), scaling(block.norms[1])],
      projection: linear(block.projection, width),
      output: linear(block.output, width),
      feedForward: {
        gated,
        hidden,
        activation: ACTIVATIONS[activation],
        up: linear(up, width),
        down: linear(down, hidden),
      },
    };
  });
  return {
    width,
    heads: model.heads,
    keyHeads: model.keyHeads,
    channels: width / model.heads,
    stages,
    norm: scaling(model.norm),
    readout: model.readout,
    head: linear(model.head, width),
  };
}

function linear(packed: Linear, inputs: number): Map_ {
  const weight = floats(packed.weight);
  const bias = packed.bias === null ? null : floats(packed.bias);
  return { weight, bias, inputs, outputs: weight.length / inputs };
}

function scaling(packed: Norm): Scaling {
  const weight = packed.weight === null ? null : floats(packed.weight);
  const bias = packed.bias === null ? null : floats(packed.bias);
  return { kind: packed.kind, eps: packed.eps, weight, bias };
}

/** Blocks, the last normalisation, readout and output layer, on the first nodes of `features`. */
export function forward(weights: Weights, graph: Graph, features: Float64Array): Result {
  const { width, stages } = weights;
  let x: Float64Array = features.slice(0, graph.nodes * width);
  const traces: Trace[] = [];
  for (const stage of stages) {
    const trace = runBlock(weights, stage, graph, x);
    traces.push(trace);
    x = trace.result;
  }
  const last = read(normalise(weights.norm, x, width), weights.readout, width);
  return { traces, outputs: apply(weights.head, last) };
}

function runBlock(weights: Weights, stage: Stage, graph: Graph, x: Float64Array): Trace {
  const { width } = weights;
  const pre = stage.order === "pre";
  const attention = attend(weights, stage, graph, pre ? normalise(stage.norms[0], x, width) : x);
  let middle = add(x, attention.attended);
  if (!pre) middle = normalise(stage.norms[0], middle, width);
  let result = add(middle, feed(stage.feedForward, pre ? normalise(stage.norms[1], middle, width) : middle));
  if (!pre) result = normalise(stage.norms[1], result, width);
  return { x, ...attention, result };
}

function attend(weights: Weights, stage: Stage, graph: Graph, x: Float64Array): Omit<Trace, "x" | "result"> {
  const { heads: H, keyHeads: G, channels: C } = weights;
  const all = apply(stage.projection, x);
  const stride = (H + 2 * G) * C;
  const q = columns(all, stride, 0, H * C);
  const k = columns(all, stride, H * C, G * C);
  const v = columns(all, stride, (H + G) * C, G * C);
  const scale = 1 / Math.sqrt(C);
  const s = new Float64Array(graph.edges * H);
  const p = new Float64Array(graph.edges * H);
  const y = new Float64Array(graph.nodes * H * C);
  for (let i = 0; i < graph.nodes; i++) {
    const first = graph.offsets[i];
    const last = graph.offsets[i + 1];
    for (let h = 0; h < H; h++) {
      const shared = Math.floor((h * G) / H);
      const from = (i * H + h) * C;
      let largest = -Infinity;
      for (let e = first; e < last; e++) {
        const to = (graph.senders[e] * G + shared) * C;
        let sum = 0;
        for (let c = 0; c < C; c++) sum += q[from + c] * k[to + c];
        s[e * H + h] = sum * scale;
        if (sum * scale > largest) largest = sum * scale;
      }
      let total = 0;
      for (let e = first; e < last; e++) total += p[e * H + h] = Math.exp(s[e * H + h] - largest);
      for (let e = first; e < last; e++) {
        const share = (p[e * H + h] /= total);
        const to = (graph.senders[e] * G + shared) * C;
        for (let c = 0; c < C; c++) y[from + c] += share * v[to + c];
      }
    }
  }
  return { q, k, v, s, p, y, attended: apply(stage.output, y) };
}

function feed({ gated, hidden, activation, up, down }: Stage["feedForward"], x: Float64Array): Float64Array {
  const wide = apply(up, x);
  if (!gated) return apply(down, wide.map(activation));
  const rows = wide.length / (2 * hidden);
  const product = new Float64Array(rows * hidden);
  for (let i = 0; i < rows; i++)
    for (let c = 0; c < hidden; c++)
      product[i * hidden + c] = activation(wide[2 * i * hidden + c]) * wide[(2 * i + 1) * hidden + c];
  return apply(down, product);
}

function apply({ weight, bias, inputs, outputs }: Map_, x: Float64Array): Float64Array {
  const rows = x.length / inputs;
  const y = new Float64Array(rows * outputs);
  for (let i = 0; i < rows; i++)
    for (let o = 0; o < outputs; o++) {
      let sum = bias === null ? 0 : bias[o];
      for (let c = 0; c < inputs; c++) sum += weight[o * inputs + c] * x[i * inputs + c];
      y[i * outputs + o] = sum;
    }
  return y;
}

function normalise({ kind, eps, weight, bias }: Scaling, x: Float64Array, width: number): Float64Array {
  if (kind === "none") return x;
  const y = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let mean = 0;
    let scale = 1;
    if (kind === "layer") {
      for (let c = 0; c < width; c++) mean += x[start + c] / width;
    }
    if (kind !== "affine") {
      let square = 0;
      for (let c = 0; c < width; c++) square += (x[start + c] - mean) ** 2 / width;
      scale = 1 / Math.sqrt(square + eps);
    }
    for (let c = 0; c < width; c++)
      y[start + c] = (x[start + c] - mean) * scale * (weight === null ? 1 : weight[c]) + (bias === null ? 0 : bias[c]);
  }
  return y;
}

function read(x: Float64Array, readout: Model["readout"], width: number): Float64Array {
  if (readout === "none") return x;
  if (readout === "first") return x.slice(0, width);
  const rows = x.length / width;
  const y = new Float64Array(width).fill(readout === "max" && rows > 0 ? -Infinity : 0);
  for (let i = 0; i < rows; i++)
    for (let c = 0; c < width; c++) {
      const value = x[i * width + c];
      y[c] = readout === "max" ? Math.max(y[c], value) : y[c] + value / (readout === "mean" ? rows : 1);
    }
  return y;
}

function columns(x: Float64Array, stride: number, first: number, count: number): Float64Array {
  const rows = x.length / stride;
  const y = new Float64Array(rows * count);
  for (let i = 0; i < rows; i++) y.set(x.subarray(i * stride + first, i * stride + first + count), i * count);
  return y;
}

function add(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((value, k) => value + b[k]);
}

/** The error function, by its series near 0 and its continued fraction further out: to about 1e-15. */
export function erf(t: number): number {
  const a = Math.abs(t);
  if (a > 6) return Math.sign(t);
  if (a < 2.5) {
    let term = t;
    let sum = t;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-t * t) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(t) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * (a + fraction)));
}

const sigmoid = (t: number): number => 1 / (1 + Math.exp(-t));

export const ACTIVATIONS: Record<string, (t: number) => number> = {
  relu: (t) => Math.max(0, t),
  gelu: (t) => 0.5 * t * (1 + erf(t / Math.SQRT2)),
  "gelu-tanh": (t) => 0.5 * t * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (t + 0.044715 * t ** 3))),
  silu: (t) => t * sigmoid(t),
  tanh: Math.tanh,
  sigmoid,
  softplus: (t) => Math.max(t, 0) + Math.log1p(Math.exp(-Math.abs(t))),
  elu: (t) => (t > 0 ? t : Math.expm1(t)),
  "leaky-relu": (t) => (t > 0 ? t : 0.01 * t),
};
