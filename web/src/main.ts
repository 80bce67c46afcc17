/** The page: reads its data, draws the views, and connects them with the controls. */
import { ofClass } from "./colours.js";
import type { PageData } from "./data.js";
import { byId, element, option, shown } from "./dom.js";
import { drawEquation } from "./equation.js";
import { Explorer, type Pair } from "./explorer.js";
import { MatrixView } from "./matrix.js";
import { NetworkView } from "./network.js";
import { drawColours, drawDepth, drawOutput, drawPlan } from "./panels.js";
import { COLOURINGS, fromHash, THEMES, toHash } from "./state.js";

export { forward, unpackModel } from "./forward.js";
export { build, Graph, hops, refine } from "./graph.js";
export { averaged, dirichletEnergy, predicted } from "./measures.js";
export { Explorer } from "./explorer.js";

type Tool = "select" | "edit" | "rewire";
const HINTS: Record<Tool, string> = {
  select: "Click a node: it becomes the receiver; then one of its senders.",
  edit: "Click the receiver, then the sender: their edge is drawn or removed.",
  rewire: "Click the new sender of the chosen edge.",
};
const MOST_OPTIONS = 2000;

export class Page {
  private readonly explorer: Explorer;
  private readonly network: NetworkView;
  private readonly matrix: MatrixView;
  private tool: Tool = "select";
  private waiting = -1; // the receiver that was clicked, while its sender is still to be clicked
  private shown: Record<string, unknown> = {};
  private dirty = true; // what is drawn of the graph
  private stale = true; // what is drawn of the matrix

  constructor(data: PageData) {
    this.explorer = new Explorer(data);
    this.network = new NetworkView(byId("network"), this.explorer, (node) => this.click(node), () => (this.dirty = true));
    this.matrix = new MatrixView(byId("matrix"), this.explorer, ([i, j]) => this.clickCell(i, j));
    document.title = data.title;
    byId("title").textContent = data.title;
    byId("lead").textContent = data.lead;
    byId("source").textContent = data.source;
    this.fillExamples();
    this.connect();
    this.explorer.onChange(() => this.changed());
    this.restore();
    const frame = (): void => {
      const moving = this.explorer.layout.step();
      if (this.dirty || moving) this.network.draw(moving);
      if (this.stale) this.matrix.draw();
      this.dirty = this.stale = false;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  get app(): Explorer {
    return this.explorer;
  }

  placeOf(node: number): { x: number; y: number } {
    return this.network.placeOf(node);
  }

  private redraw(): void {
    this.dirty = this.stale = true;
  }

  private restore(): void {
    this.explorer.restore(fromHash(location.hash, this.explorer.start));
  }

  /** Redraw what depends on what changed; hovering changes only the pair that is shown. */
  private changed(): void {
    const { explorer } = this;
    const { state, result } = explorer;
    const differs = (name: string, ...values: unknown[]): boolean => {
      const key = JSON.stringify(values);
      const before = this.shown[name];
      this.shown[name] = key;
      return key !== before;
    };
    const numbers = this.shown["result"] !== result;
    this.shown["result"] = result;
    if (numbers || differs("layout", state.layer, state.head, state.theme)) {
      this.applyTheme();
      this.matrix.refresh();
      drawDepth(explorer, byId("depth"));
      this.shown["nodes"] = null;
    }
    if (differs("nodes", state.i, state.colouring, state.round)) this.network.refresh();
    if (numbers) {
      this.fillChoices();
      drawPlan(explorer, byId("plan"));
    }
    if (numbers || differs("round", state.round)) drawColours(explorer, byId("colours"), byId("round"));
    const [i, j] = explorer.shownPair;
    if (numbers || differs("pair", i, j, state.layer, state.head)) {
      drawEquation(explorer, byId("equation"));
      drawOutput(explorer, byId("output"));
    }
    this.syncControls();
    if (explorer.hovered === null) {
      const hash = toHash(state, explorer.start);
      if (hash !== location.hash) history.replaceState(null, "", hash);
    }
    this.redraw();
  }

  private applyTheme(): void {
    const { theme } = this.explorer.state;
    const root = document.documentElement;
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
    const button = byId("theme");
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme === "auto" ? "as the system" : theme}`);
  }

  private fillExamples(): void {
    const { examples } = this.explorer.data;
    byId("example").append(...examples.map((example, k) => option(String(k), example.title)));
    byId("example-box").hidden = examples.length < 2;
  }

  /** The choices that depend on the example and the graph. */
  private fillChoices(): void {
    const { explorer } = this;
    const { example, graph, weights, state } = explorer;
    const buttons = example.graphs.map(({ name, title }) => {
      const input = element("input", { type: "radio", name: "graph", value: name });
      input.checked = name === state.graph;
      input.addEventListener("change", () => explorer.set({ graph: name }));
      return element("label", {}, input, title);
    });
    const names = example.graphs.map(({ name }) => name).join();
    if (this.shown["graphs"] !== `${state.example}:${names}`) byId("graphs").replaceChildren(...buttons);
    this.shown["graphs"] = `${state.example}:${names}`;
    const nodes = Math.min(graph.nodes, MOST_OPTIONS);
    const label = `${state.example}:${state.graph}`;
    for (const id of ["receiver", "sender"]) {
      const list = byId<HTMLSelectElement>(id);
      if (list.dataset["of"] !== label)
        list.replaceChildren(...Array.from({ length: nodes }, (_, i) => option(String(i), explorer.name(i) === String(i) ? String(i) : `${i}: ${explorer.name(i)}`)));
      list.dataset["of"] = label;
    }
    fill(byId("layer"), weights.stages.length);
    fill(byId("head"), weights.heads);
  }

  private syncControls(): void {
    const { explorer } = this;
    const { state, graph } = explorer;
    const [i, j] = explorer.shownPair;
    for (const [id, value] of [["example", state.example], ["layer", state.layer], ["head", state.head], ["receiver", i], ["sender", j], ["colouring", state.colouring]] as const)
      byId<HTMLSelectElement>(id).value = String(value);
    for (const input of document.querySelectorAll<HTMLInputElement>("input[name=graph]")) input.checked = input.value === state.graph;
    const edited = state.toggled.length ? `, ${state.toggled.length} edited` : "";
    byId("size").textContent = `${graph.nodes} nodes, ${graph.edges} edges${edited}`;
    byId("toggle").textContent = graph.edge(state.i, state.j) >= 0 ? "Remove edge" : "Draw edge";
    byId<HTMLButtonElement>("undo").disabled = byId<HTMLButtonElement>("reset").disabled = state.toggled.length === 0;
    this.drawLegend();
  }

  private drawLegend(): void {
    const { explorer } = this;
    const { state, data, weights } = explorer;
    const hint = byId("hint");
    const text = HINTS[this.tool];
    const legend = state.colouring === "classes" && weights.readout === "none" && data.model.outputs.length <= 10;
    const key = `${text}:${legend}`;
    if (this.shown["hint"] === key) return;
    this.shown["hint"] = key;
    const parts: (Node | string)[] = [text];
    if (legend)
      data.model.outputs.forEach((name, k) => {
        const dot = element("span", { "aria-hidden": "true" }, " ● ");
        dot.style.color = ofClass(k);
        parts.push(dot, name);
      });
    hint.replaceChildren(...parts);
  }

  private get both(): boolean {
    return byId<HTMLInputElement>("both").checked;
  }

  private click(node: number): void {
    const { explorer } = this;
    const { i, j } = explorer.state;
    if (this.tool === "rewire") {
      explorer.rewire(i, j, node, this.both);
      this.say(`The edge to ${explorer.name(i)} now comes from ${explorer.name(node)}.`);
    } else if (this.waiting < 0) {
      this.waiting = node;
      explorer.set({ i: node, j: strongest(explorer, node) });
      this.say(`${explorer.name(node)} is the receiver; click a sender.`);
    } else {
      const receiver = this.waiting;
      this.waiting = -1;
      explorer.set({ i: receiver, j: node });
      if (this.tool === "edit") this.edit();
      else this.sayPair();
    }
  }

  private clickCell(i: number, j: number): void {
    this.waiting = -1;
    this.explorer.set({ i, j });
    if (this.tool === "edit") this.edit();
    else if (this.tool === "select") this.sayPair();
  }

  private edit(): void {
    const { explorer } = this;
    const { i, j } = explorer.state;
    explorer.edit(i, j, this.both);
    const what = explorer.graph.edge(i, j) >= 0 ? "drawn" : "removed";
    this.say(`Edge from ${explorer.name(j)} to ${explorer.name(i)} ${what}: ${explorer.graph.edges} edges.`);
  }

  private sayPair(): void {
    const { explorer } = this;
    const { i, j } = explorer.state;
    const edge = explorer.graph.edge(i, j);
    const share = edge < 0 ? "no edge" : `p = ${shown(explorer.weight(edge))}`;
    this.say(`${explorer.name(i)} attends to ${explorer.name(j)}: ${share}.`);
  }

  private say(text: string): void {
    byId("status").textContent = text;
  }

  private connect(): void {
    const { explorer } = this;
    const choose = (id: string, take: (value: string) => void): void =>
      byId<HTMLSelectElement>(id).addEventListener("change", (event) => take((event.target as HTMLSelectElement).value));
    choose("example", (value) => explorer.set({ example: Number(value), graph: "" }));
    choose("layer", (value) => explorer.set({ layer: Number(value) }));
    choose("head", (value) => explorer.set({ head: Number(value) }));
    choose("receiver", (value) => explorer.set({ i: Number(value) }));
    choose("sender", (value) => explorer.set({ j: Number(value) }));
    choose("colouring", (value) => explorer.set({ colouring: COLOURINGS.find((name) => name === value) ?? "classes" }));
    byId("round").addEventListener("input", (event) =>
      explorer.set({ round: Number((event.target as HTMLInputElement).value), colouring: "refinement" }));
    for (const input of document.querySelectorAll<HTMLInputElement>("input[name=tool]"))
      input.addEventListener("change", () => {
        this.tool = input.value as Tool;
        this.waiting = -1;
        this.drawLegend();
      });
    byId("theme").addEventListener("click", () =>
      explorer.set({ theme: THEMES[(THEMES.indexOf(explorer.state.theme) + 1) % THEMES.length] }));
    byId("toggle").addEventListener("click", () => this.edit());
    byId("undo").addEventListener("click", () => explorer.undo());
    byId("reset").addEventListener("click", () => explorer.reset());
    byId("fit").addEventListener("click", () => this.network.recentre());
    byId("random").addEventListener("click", () => this.rewireRandomly(10));
    byId("link").addEventListener("click", () => void this.copyLink());
    for (const id of ["network", "matrix"]) byId(id).addEventListener("keydown", (event) => this.press(event));
    window.addEventListener("hashchange", () => this.restore());
    new ResizeObserver(() => this.redraw()).observe(byId("network"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.network.refresh();
      this.matrix.refresh();
      this.redraw();
    });
  }

  private press(event: KeyboardEvent): void {
    const { explorer } = this;
    const { graph, state } = explorer;
    if (graph.nodes === 0) return;
    const onMatrix = event.target === byId("matrix");
    const step = (value: number, by: number): number => (value + by + graph.nodes) % graph.nodes;
    const by = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : -1;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const i = step(state.i, by);
      explorer.set(onMatrix ? { i } : { i, j: strongest(explorer, i) });
      this.sayPair();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const list = graph.sendersOf(state.i);
      const at = list.indexOf(state.j);
      const next = onMatrix || list.length === 0 ? step(state.j, by) : list[(at + by + list.length) % list.length];
      explorer.set({ j: next });
      this.sayPair();
    } else if (event.key === "Enter" || event.key === "Delete") {
      if (event.key === "Enter" || graph.edge(state.i, state.j) >= 0) this.edit();
    } else return;
    event.preventDefault();
  }

  private rewireRandomly(count: number): void {
    const { explorer } = this;
    const { graph } = explorer;
    const pairs = new Map<string, Pair>();
    for (let k = 0; k < 20 * count && pairs.size < 2 * count && graph.edges; k++) {
      const i = Math.floor(Math.random() * graph.nodes);
      const list = graph.sendersOf(i).filter((j) => j !== i);
      const [old, fresh] = [list[Math.floor(Math.random() * list.length)], Math.floor(Math.random() * graph.nodes)];
      if (old === undefined || graph.edge(i, fresh) >= 0 || pairs.has(`${i} ${old}`) || pairs.has(`${i} ${fresh}`)) continue;
      pairs.set(`${i} ${old}`, [i, old]).set(`${i} ${fresh}`, [i, fresh]);
    }
    explorer.toggle(...pairs.values());
    this.say(`${pairs.size / 2} edges rewired at random.`);
  }

  private async copyLink(): Promise<void> {
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("The link is copied.");
    } catch {
      this.say(`The link is the address of this page: ${location.hash}`);
    }
  }
}

/** The sender with the largest weight; the node itself where it has none. */
function strongest(explorer: Explorer, i: number): number {
  const { graph } = explorer;
  let best = -1;
  for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; e++) if (best < 0 || explorer.weight(e) > explorer.weight(best)) best = e;
  return best < 0 ? i : graph.senders[best];
}

function fill(list: HTMLSelectElement, count: number): void {
  if (list.options.length !== count) list.replaceChildren(...Array.from({ length: count }, (_, k) => option(String(k), String(k + 1))));
}

/** The page, where this script runs in one. */
export const page = typeof document === "undefined" ? null : new Page(JSON.parse(byId("data").textContent ?? "") as PageData);
