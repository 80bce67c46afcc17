/** What Python writes into the page: a model's weights, its examples, and the graphs to put them on. */

/** Little-endian float32 or int32 numbers in base64. */
export type Packed = string;

export interface Linear {
  weight: Packed; // [outputs, inputs]
  bias: Packed | null;
}

export interface Norm {
  kind: "layer" | "rms" | "affine" | "none"; // affine: batch normalisation with its running mean and variance
  eps: number;
  weight: Packed | null;
  bias: Packed | null;
}

export interface Block {
  order: "pre" | "post";
  norms: [Norm, Norm];
  projection: Linear; // [W_Q ‖ W_K ‖ W_V]ᵀ
  output: Linear;
  feedForward: { gated: boolean; hidden: number; activation: string; up: Linear; down: Linear };
}

export interface Model {
  width: number;
  heads: number;
  keyHeads: number; // heads of keys and values, each shared by heads / keyHeads of the queries'
  blocks: Block[];
  norm: Norm;
  readout: "none" | "mean" | "sum" | "max" | "first";
  head: Linear;
  outputs: string[];
}

export interface Candidate {
  backend: string;
  seconds: number | null;
  refusal: string | null;
}

export interface GraphChoice {
  name: string; // "causal", "friendship", ...
  title: string;
  nodes: number; // the first so many nodes of the example
  names: string[] | null; // of the nodes, where the graph has its own
  edges: Packed | null; // int32 pairs: receiver, sender, ...; null: `rule`
  rule: Rule | null;
  places: number[] | null; // of the nodes: x, y, ...; null: found by the page
  plan: Candidate[];
}

export interface Rule {
  kind: "causal" | "window" | "grid" | "complete";
  radius: number; // of a window
  columns: number; // of a grid
}

/** Predicted seconds of each backend on a list of edges, by the number of edges. */
export interface Prediction {
  nodes: number;
  edges: number[];
  seconds: Record<string, number[]>;
}

export interface Example {
  title: string;
  note: string;
  names: string[];
  features: Packed; // [N, width]: what the first block reads
  targets: number[] | null; // per node, -1 where it has none; one for the graph where the model has a readout
  graphs: GraphChoice[];
  predictions: Prediction[];
}

export interface PageData {
  title: string;
  lead: string;
  source: string; // how to make the page again
  start: { layer?: number; head?: number; i?: number; j?: number }; // what is chosen at first
  model: Model;
  examples: Example[];
}

export function floats(packed: Packed): Float64Array {
  const bytes = unpack(packed);
  return Float64Array.from(new Float32Array(bytes.buffer));
}

export function integers(packed: Packed): Int32Array {
  return new Int32Array(unpack(packed).buffer);
}

function unpack(packed: Packed): Uint8Array<ArrayBuffer> {
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}
