/** The page's model: what is chosen, the graph as edited, and the numbers that follow from both. */
import { floats, type Candidate, type Example, type GraphChoice, type PageData } from "./data.js";
import { forward, unpackModel, type Result, type Trace, type Weights } from "./forward.js";
import { build, type Graph } from "./graph.js";
import { Layout } from "./layout.js";
import { predicted } from "./measures.js";
import { START, toggle, type State } from "./state.js";

export type Pair = readonly [number, number]; // receiver, sender

export class Explorer {
  readonly weights: Weights;
  readonly start: State;
  state: State;
  example!: Example;
  choice!: GraphChoice;
  graph!: Graph;
  layout!: Layout;
  result!: Result;
  /** The pair under the pointer, which the views show instead of the chosen one. */
  hovered: Pair | null = null;
  private readonly listeners: (() => void)[] = [];
  private features!: Float64Array;
  private original!: Graph;

  constructor(readonly data: PageData) {
    this.weights = unpackModel(data.model);
    this.start = { ...START, graph: data.examples[0].graphs[0].name, ...data.start };
    this.state = this.start;
    this.restore(this.state);
  }

  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  /** Take a state, put what does not exist within bounds, and compute all that follows. */
  restore(state: State): void {
    const s = { ...state, toggled: [...state.toggled] };
    s.example = Math.min(s.example, this.data.examples.length - 1);
    this.example = this.data.examples[s.example];
    this.features = floats(this.example.features);
    this.choice = this.example.graphs.find(({ name }) => name === s.graph) ?? this.example.graphs[0];
    s.graph = this.choice.name;
    s.toggled = s.toggled.filter((pair) => pair.every((node) => node < this.choice.nodes));
    this.state = s;
    this.original = build(this.choice);
    this.layout = new Layout(this.choice, this.original);
    this.compute();
  }

  set(change: Partial<State>): void {
    if (change.example !== undefined || change.graph !== undefined) {
      this.restore({ ...this.state, ...change, toggled: [] });
    } else {
      Object.assign(this.state, change);
      this.bound();
      this.notify();
    }
  }

  hover(pair: Pair | null): void {
    if (pair?.[0] === this.hovered?.[0] && pair?.[1] === this.hovered?.[1]) return;
    this.hovered = pair;
    this.notify();
  }

  /** Draw these edges where there are none, remove them where they are. */
  toggle(...pairs: Pair[]): void {
    for (const [i, j] of pairs) toggle(this.state.toggled, i, j);
    this.compute();
  }

  /** Draw or remove the edge from j to i; in both directions, the way back becomes alike. */
  edit(i: number, j: number, both: boolean): void {
    const present = this.graph.edge(i, j) >= 0;
    const pairs: Pair[] = [[i, j]];
    if (both && i !== j && this.graph.edge(j, i) >= 0 === present) pairs.push([j, i]);
    this.toggle(...pairs);
  }

  /** Move the edge from j to i to another sender. */
  rewire(i: number, j: number, to: number, both: boolean): void {
    if (this.graph.edge(i, j) < 0 || this.graph.edge(i, to) >= 0) return;
    const pairs: Pair[] = [[i, j], [i, to]];
    if (both && i !== j && this.graph.edge(j, i) >= 0) pairs.push([j, i]);
    if (both && i !== to && this.graph.edge(to, i) < 0) pairs.push([to, i]);
    this.toggle(...pairs);
    this.set({ i, j: to });
  }

  undo(): void {
    this.state.toggled.pop();
    this.compute();
  }

  reset(): void {
    this.state.toggled = [];
    this.compute();
  }

  get trace(): Trace {
    return this.result.traces[this.state.layer];
  }

  get shownPair(): Pair {
    return this.hovered ?? [this.state.i, this.state.j];
  }

  /** The weight p of an edge, of the chosen layer and head. */
  weight(edge: number): number {
    return this.trace.p[edge * this.weights.heads + this.state.head];
  }

  name(node: number): string {
    return this.choice.names?.[node] ?? this.example.names[node] ?? String(node);
  }

  /** The planner's table: for the graph as it came, or interpolated for as many edges as it has now. */
  plan(): { candidates: Candidate[]; interpolated: boolean } {
    if (this.state.toggled.length === 0) return { candidates: this.choice.plan, interpolated: false };
    const known = this.example.predictions.find(({ nodes }) => nodes === this.choice.nodes);
    return { candidates: known ? predicted(known, this.graph.edges) : [], interpolated: true };
  }

  private compute(): void {
    this.graph = this.state.toggled.length ? this.original.toggled(this.state.toggled) : this.original;
    this.result = forward(this.weights, this.graph, this.features);
    this.hovered = null;
    this.bound();
    this.notify();
  }

  private bound(): void {
    const last = Math.max(this.graph.nodes - 1, 0);
    const s = this.state;
    s.i = Math.min(s.i, last);
    s.j = Math.min(s.j, last);
    s.layer = Math.min(s.layer, this.weights.stages.length - 1);
    s.head = Math.min(s.head, this.weights.heads - 1);
  }

  private notify(): void {
    for (const listener of this.listeners) listener();
  }
}
