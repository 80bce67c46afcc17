/** The graph as nodes and links on a canvas; the half of an edge next to a node shows its attention to the other end. */
import { quadtree } from "d3-quadtree";
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomTransform } from "d3-zoom";
import { mixed, ofClass, palette, type Palette } from "./colours.js";
import type { Explorer, Pair } from "./explorer.js";
import { hops, refine } from "./graph.js";
import { largest } from "./measures.js";
import type { Place } from "./layout.js";

const LEVELS = 6; // of an edge's strength, each drawn as one path
const DRAWN = 20_000; // edges at most, the strongest
const LABELLED = 64; // nodes up to which all names are written
const LARGE = 600; // nodes above which a moving graph is drawn in outline
const STILL = 200; // milliseconds after which a graph counts as still
const TOUCHED = 14; // pixels from a node that still touch it

export class NetworkView {
  private readonly context: CanvasRenderingContext2D;
  private transform: ZoomTransform = zoomIdentity;
  private fit = { scale: 1, x: 0, y: 0 };
  private edges: { receivers: Int32Array; senders: Int32Array; ends: number[] } | null = null;
  private colours: string[] = [];
  private paint: Palette = palette();
  private readonly picture = document.createElement("canvas"); // a large graph as last drawn, which zooming only moves
  private pictured: ZoomTransform = zoomIdentity;
  private waiting = 0; // the timer that draws it anew
  private readonly zooming;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly explorer: Explorer,
    private readonly onClick: (node: number) => void,
    private readonly onMove: () => void,
  ) {
    this.context = canvas.getContext("2d")!;
    this.zooming = zoom<HTMLCanvasElement, unknown>().scaleExtent([0.3, 30]).on("zoom", (event) => {
      this.transform = event.transform;
      if (explorer.graph.nodes > LARGE && this.picture.width) this.movePicture();
      else this.onMove();
    });
    select(canvas).call(this.zooming).on("dblclick.zoom", null);
    canvas.addEventListener("click", (event) => {
      const node = this.nodeAt(event);
      if (node >= 0) this.onClick(node);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons === 0) explorer.hover(this.pairAt(event));
    });
    canvas.addEventListener("pointerleave", () => explorer.hover(null));
  }

  /** Numbers, colours or the graph changed: sort the edges by strength, and colour the nodes. */
  refresh(): void {
    this.paint = palette();
    this.edges = this.sorted();
    this.colours = this.nodeColours();
  }

  recentre(): void {
    select(this.canvas).call(this.zooming.transform, zoomIdentity);
  }

  /** The picture where the zoom has moved it, until the graph is drawn anew. */
  private movePicture(): void {
    const { canvas, context, pictured, transform } = this;
    const scale = transform.k / pictured.k;
    const ratio = canvas.width / canvas.clientWidth;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.width);
    const [x, y] = [transform.x - scale * pictured.x, transform.y - scale * pictured.y];
    context.drawImage(this.picture, x * ratio, y * ratio, scale * canvas.width, scale * canvas.width);
    this.drawSoon();
  }

  private drawSoon(): void {
    window.clearTimeout(this.waiting);
    this.waiting = window.setTimeout(this.onMove, STILL);
  }

  /** Edges as thin lines of one colour, nodes as squares: a large graph while its layout settles. */
  private drawOutline(points: Place[]): void {
    const { context, paint } = this;
    const { graph } = this.explorer;
    context.strokeStyle = paint.rule;
    context.lineWidth = 1;
    context.beginPath();
    for (let i = 0; i < graph.nodes; i++)
      for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; e++)
        if (graph.senders[e] < i) {
          context.moveTo(points[i].x, points[i].y);
          context.lineTo(points[graph.senders[e]].x, points[graph.senders[e]].y);
        }
    context.stroke();
    points.forEach(({ x, y }, node) => {
      context.fillStyle = this.colours[node];
      context.fillRect(x - 1.5, y - 1.5, 3, 3);
    });
    this.picture.width = 0;
    this.drawSoon();
  }

  /** Draw the graph; a large one that still moves in outline. */
  draw(moving = false): void {
    const { canvas, context, explorer, paint } = this;
    const { places } = explorer.layout;
    const ratio = window.devicePixelRatio || 1;
    const size = canvas.clientWidth;
    if (canvas.width !== Math.round(size * ratio)) canvas.width = canvas.height = Math.round(size * ratio);
    this.measure(places, size);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size, size);
    const points = places.map((place) => this.onScreen(place));
    if (moving && points.length > LARGE) return this.drawOutline(points);
    this.drawEdges(points);
    this.drawChosen(points);
    const radius = this.radius();
    const groups = new Map<string, Place[]>();
    points.forEach((point, node) => {
      const group = groups.get(this.colours[node]);
      if (group) group.push(point);
      else groups.set(this.colours[node], [point]);
    });
    context.strokeStyle = paint.paper;
    context.lineWidth = 1;
    for (const [colour, members] of groups) {
      context.fillStyle = colour;
      context.beginPath();
      for (const { x, y } of members) {
        context.moveTo(x + radius, y);
        context.arc(x, y, radius, 0, 2 * Math.PI);
      }
      context.fill();
      if (radius > 3) context.stroke();
    }
    const [i, j] = explorer.shownPair;
    this.ring(points[j], radius + 2.5, paint.warm);
    this.ring(points[i], radius + (i === j ? 5 : 2.5), paint.accent);
    this.drawNames(points, radius);
    if (points.length > LARGE) {
      this.picture.width = this.picture.height = canvas.width;
      this.picture.getContext("2d")!.drawImage(canvas, 0, 0);
      this.pictured = this.transform;
    }
  }

  private drawEdges(points: Place[]): void {
    if (!this.edges) return;
    const { context, paint } = this;
    const { receivers, senders, ends } = this.edges;
    let e = 0;
    for (let level = 0; level < LEVELS; level++) {
      const strength = level / (LEVELS - 1);
      context.beginPath();
      for (; e < ends[level]; e++) {
        const a = points[receivers[e]];
        const b = points[senders[e]];
        context.moveTo(a.x, a.y);
        context.lineTo((a.x + b.x) / 2, (a.y + b.y) / 2);
      }
      context.strokeStyle = mixed(paint.rule, paint.ink, strength);
      context.lineWidth = 0.6 + 3.4 * strength;
      context.stroke();
    }
  }

  /** The edges of the receiver that is shown, and the pair itself. */
  private drawChosen(points: Place[]): void {
    const { context, explorer, paint } = this;
    const { graph } = explorer;
    const [i, j] = explorer.shownPair;
    if (graph.nodes === 0) return;
    const line = (a: Place, b: Place, width: number, colour: string): void => {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(a.x, a.y);
      context.lineTo(b.x, b.y);
      context.stroke();
    };
    for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; e++)
      line(points[i], points[graph.senders[e]], 0.8 + 5 * explorer.weight(e), paint.accent);
    const chosen = graph.edge(i, j);
    if (chosen >= 0) line(points[i], points[j], 1.6 + 5 * explorer.weight(chosen), paint.warm);
    else {
      context.setLineDash([4, 4]);
      line(points[i], points[j], 1.2, paint.warm);
      context.setLineDash([]);
    }
  }

  private drawNames(points: Place[], radius: number): void {
    const { context, explorer, paint } = this;
    const all = points.length <= LABELLED || this.transform.k > 4;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.lineWidth = 3;
    context.strokeStyle = paint.paper;
    context.fillStyle = paint.ink;
    const shown = all ? points.map((_, node) => node) : [...explorer.shownPair];
    const size = this.canvas.clientWidth;
    for (const node of shown) {
      const point = points[node];
      if (!point || point.x < 0 || point.y < 0 || point.x > size || point.y > size) continue;
      context.strokeText(explorer.name(node), point.x, point.y - radius - 4);
      context.fillText(explorer.name(node), point.x, point.y - radius - 4);
    }
  }

  private ring(point: Place | undefined, radius: number, colour: string): void {
    if (!point) return;
    this.context.strokeStyle = colour;
    this.context.lineWidth = 2.5;
    this.context.beginPath();
    this.context.arc(point.x, point.y, radius, 0, 2 * Math.PI);
    this.context.stroke();
  }

  private radius(): number {
    const nodes = this.explorer.graph.nodes;
    return (nodes > 600 ? 2.2 : nodes > 150 ? 3.5 : 6) * Math.min(3, Math.sqrt(Math.max(1, this.transform.k)));
  }

  private measure(places: readonly Place[], size: number): void {
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of places) {
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
    }
    const margin = 26;
    const scale = (size - 2 * margin) / Math.max(right - left, bottom - top, 1);
    this.fit = { scale, x: size / 2 - (scale * (left + right)) / 2, y: size / 2 - (scale * (top + bottom)) / 2 };
  }

  private onScreen({ x, y }: Place): Place {
    const { scale, x: dx, y: dy } = this.fit;
    return { x: this.transform.applyX(scale * x + dx), y: this.transform.applyY(scale * y + dy) };
  }

  /** Where a node is on the canvas, in CSS pixels. */
  placeOf(node: number): Place {
    return this.onScreen(this.explorer.layout.places[node]);
  }

  private nodeAt(event: MouseEvent): number {
    const box = this.canvas.getBoundingClientRect();
    const points = this.explorer.layout.places.map((place, node) => ({ ...this.onScreen(place), node }));
    const tree = quadtree(points, (point) => point.x, (point) => point.y);
    return tree.find(event.clientX - box.left, event.clientY - box.top, TOUCHED)?.node ?? -1;
  }

  /** The node under the pointer as a sender of the chosen receiver, or the half edge under it as a pair. */
  private pairAt(event: MouseEvent): Pair | null {
    const { graph, state, layout } = this.explorer;
    const node = this.nodeAt(event);
    if (node >= 0) return [state.i, node];
    if (!this.edges || graph.edges > 4000) return null;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const points = layout.places.map((place) => this.onScreen(place));
    let best: Pair | null = null;
    let nearest = 5;
    for (let e = 0; e < this.edges.receivers.length; e++) {
      const [i, j] = [this.edges.receivers[e], this.edges.senders[e]];
      const [dx, dy] = [(points[j].x - points[i].x) / 2, (points[j].y - points[i].y) / 2];
      const along = ((x - points[i].x) * dx + (y - points[i].y) * dy) / (dx * dx + dy * dy || 1);
      if (along < 0 || along > 1) continue;
      const away = Math.hypot(x - points[i].x - along * dx, y - points[i].y - along * dy);
      if (away < nearest) [best, nearest] = [[i, j], away];
    }
    return best;
  }

  /** The edges between different nodes by their level, the strongest last. */
  private sorted(): { receivers: Int32Array; senders: Int32Array; ends: number[] } {
    const { graph } = this.explorer;
    const buckets: number[][] = Array.from({ length: LEVELS }, () => []);
    for (let i = 0; i < graph.nodes; i++)
      for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; e++)
        if (graph.senders[e] !== i) {
          const strength = Math.sqrt(this.explorer.weight(e));
          buckets[Math.min(LEVELS - 1, Math.floor(strength * LEVELS))].push(i, graph.senders[e]);
        }
    let excess = buckets.reduce((sum, bucket) => sum + bucket.length / 2, 0) - DRAWN;
    for (const bucket of buckets) {
      if (excess <= 0) break;
      const dropped = Math.min(excess, bucket.length / 2);
      bucket.splice(0, 2 * dropped);
      excess -= dropped;
    }
    const flat = buckets.flat();
    const ends = buckets.map((_, level) => buckets.slice(0, level + 1).reduce((sum, bucket) => sum + bucket.length / 2, 0));
    return {
      receivers: Int32Array.from({ length: flat.length / 2 }, (_, e) => flat[2 * e]),
      senders: Int32Array.from({ length: flat.length / 2 }, (_, e) => flat[2 * e + 1]),
      ends,
    };
  }

  private nodeColours(): string[] {
    const { explorer, paint } = this;
    const { graph, state, weights, result } = explorer;
    const all = Array.from({ length: graph.nodes }, (_, node) => node);
    if (state.colouring === "refinement") {
      const rounds = refine(graph);
      const colours = rounds[Math.min(state.round, rounds.length - 1)];
      return all.map((node) => ofClass(colours[node]));
    }
    if (state.colouring === "hops") {
      const distance = hops(graph, state.i);
      const most = Math.max(1, ...distance);
      return all.map((node) =>
        distance[node] < 0 ? paint.rule : mixed(paint.accent, paint.rule, (0.85 * distance[node]) / most),
      );
    }
    if (state.colouring === "attention") {
      const share = new Float64Array(graph.nodes);
      for (let e = graph.offsets[state.i]; e < graph.offsets[state.i + 1]; e++) share[graph.senders[e]] = explorer.weight(e);
      const most = Math.max(1e-12, ...share);
      return all.map((node) => mixed(paint.rule, paint.accent, share[node] / most));
    }
    if (weights.readout !== "none") return all.map(() => paint.muted);
    const outputs = weights.head.outputs;
    return all.map((node) => ofClass(largest(result.outputs.subarray(node * outputs, (node + 1) * outputs))));
  }
}
