/** Who listens to whom: the senders of every receiver, as lists of edges that can be edited. */
import { integers, type GraphChoice, type Rule } from "./data.js";

export class Graph {
  /** Receiver-major: the edges of receiver i are offsets[i] ... offsets[i + 1] - 1. */
  readonly offsets: Int32Array;
  readonly senders: Int32Array;

  constructor(readonly nodes: number, lists: readonly (readonly number[])[]) {
    this.offsets = new Int32Array(nodes + 1);
    for (let i = 0; i < nodes; i++) this.offsets[i + 1] = this.offsets[i] + lists[i].length;
    this.senders = new Int32Array(this.offsets[nodes]);
    for (let i = 0; i < nodes; i++) this.senders.set([...lists[i]].sort((a, b) => a - b), this.offsets[i]);
  }

  get edges(): number {
    return this.senders.length;
  }

  sendersOf(i: number): number[] {
    return Array.from(this.senders.subarray(this.offsets[i], this.offsets[i + 1]));
  }

  /** The number of the edge from j to i, -1 where there is none. */
  edge(i: number, j: number): number {
    let low = this.offsets[i];
    let high = this.offsets[i + 1] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.senders[middle] === j) return middle;
      if (this.senders[middle] < j) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  /** The same graph, where each pair (i, j) becomes an edge if it was none, and none if it was one. */
  toggled(pairs: Iterable<readonly [number, number]>): Graph {
    const lists: number[][] = [];
    for (let i = 0; i < this.nodes; i++) lists.push(this.sendersOf(i));
    for (const [i, j] of pairs) {
      const at = lists[i].indexOf(j);
      if (at < 0) lists[i].push(j);
      else lists[i].splice(at, 1);
    }
    return new Graph(this.nodes, lists);
  }

  /** The same nodes with every edge in both directions. */
  symmetric(): Graph {
    const lists = Array.from({ length: this.nodes }, (_, i) => new Set(this.sendersOf(i)));
    for (let i = 0; i < this.nodes; i++) for (const j of this.sendersOf(i)) lists[j].add(i);
    return new Graph(this.nodes, lists.map((list) => [...list]));
  }
}

/** The graph of a choice, before any edit. */
export function build(choice: GraphChoice): Graph {
  const lists: number[][] = Array.from({ length: choice.nodes }, () => []);
  if (choice.edges !== null) {
    const pairs = integers(choice.edges);
    for (let e = 0; e < pairs.length; e += 2) lists[pairs[e]].push(pairs[e + 1]);
  } else if (choice.rule !== null) {
    for (let i = 0; i < choice.nodes; i++) lists[i] = follow(choice.rule, choice.nodes, i);
  }
  return new Graph(choice.nodes, lists);
}

function follow(rule: Rule, nodes: number, i: number): number[] {
  const senders: number[] = [];
  const row = Math.floor(i / rule.columns);
  const first = rule.kind === "window" ? Math.max(0, i - rule.radius) : 0;
  const last =
    rule.kind === "causal" ? i : rule.kind === "window" ? Math.min(nodes - 1, i + rule.radius) : nodes - 1;
  for (let j = first; j <= last; j++) {
    if (rule.kind === "grid") {
      const rows = Math.abs(Math.floor(j / rule.columns) - row);
      const columns = Math.abs((j % rule.columns) - (i % rule.columns));
      if (Math.max(rows, columns) > 1) continue;
    }
    senders.push(j);
  }
  return senders;
}

/** How many edges lead from each node to `target`; -1 where no path does. */
export function hops(graph: Graph, target: number): Int32Array {
  const distance = new Int32Array(graph.nodes).fill(-1);
  distance[target] = 0;
  const queue = [target];
  for (const i of queue) {
    for (const j of graph.sendersOf(i)) {
      if (distance[j] < 0) {
        distance[j] = distance[i] + 1;
        queue.push(j);
      }
    }
  }
  return distance;
}

/** Colour refinement (1-WL): the colours after each round, from all alike until no class is split. */
export function refine(graph: Graph): Int32Array[] {
  const rounds = [new Int32Array(graph.nodes)];
  let count = graph.nodes > 0 ? 1 : 0;
  for (;;) {
    const before = rounds[rounds.length - 1];
    const numbers = new Map<string, number>();
    const after = new Int32Array(graph.nodes);
    for (let i = 0; i < graph.nodes; i++) {
      const seen = Array.from(graph.sendersOf(i), (j) => before[j]).sort((a, b) => a - b);
      const key = `${before[i]}:${seen.join(",")}`;
      if (!numbers.has(key)) numbers.set(key, numbers.size);
      after[i] = numbers.get(key)!;
    }
    if (numbers.size <= count) return rounds;
    count = numbers.size;
    rounds.push(after);
  }
}
