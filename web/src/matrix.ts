/** The same graph as a matrix: row i, column j, the shade p_ij. */
import { mixed, palette } from "./colours.js";
import type { Explorer, Pair } from "./explorer.js";

const RULED = 40; // nodes up to which cells have borders
const SMALLEST = 1.5; // pixels of a cell
const SHADES = 32;

export class MatrixView {
  private readonly context: CanvasRenderingContext2D;
  private readonly scaled = document.createElement("canvas"); // the cells at the size of the screen

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly explorer: Explorer,
    onClick: (pair: Pair) => void,
  ) {
    this.context = canvas.getContext("2d")!;
    canvas.addEventListener("pointermove", (event) => explorer.hover(this.pairAt(event)));
    canvas.addEventListener("pointerleave", () => explorer.hover(null));
    canvas.addEventListener("click", (event) => {
      const pair = this.pairAt(event);
      if (pair) onClick(pair);
    });
  }

  refresh(): void {
    this.scaled.width = 0;
  }

  /** Every edge as a cell, of a large graph no smaller than can be seen. */
  private paint(size: number): void {
    const { graph } = this.explorer;
    const paint = palette();
    this.scaled.width = this.scaled.height = size;
    const context = this.scaled.getContext("2d")!;
    context.fillStyle = paint.paper;
    context.fillRect(0, 0, size, size);
    const cell = size / Math.max(graph.nodes, 1);
    const side = Math.max(cell, SMALLEST);
    const shades = Array.from({ length: SHADES + 1 }, (_, k) => mixed(paint.rule, paint.accent, k / SHADES));
    for (let i = 0; i < graph.nodes; i++)
      for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; e++) {
        context.fillStyle = shades[Math.round(SHADES * Math.sqrt(this.explorer.weight(e)))];
        context.fillRect(graph.senders[e] * cell, i * cell, side, side);
      }
  }

  draw(): void {
    const { canvas, context, explorer } = this;
    const ratio = window.devicePixelRatio || 1;
    const size = canvas.clientWidth;
    if (canvas.width !== Math.round(size * ratio)) canvas.width = canvas.height = Math.round(size * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.scaled.width !== canvas.width) this.paint(canvas.width);
    context.drawImage(this.scaled, 0, 0, size, size);
    const paint = palette();
    const n = Math.max(explorer.graph.nodes, 1);
    const cell = size / n;
    if (n <= RULED) {
      context.strokeStyle = paint.paper;
      context.lineWidth = 1;
      context.beginPath();
      for (let k = 1; k < n; k++) {
        context.moveTo(k * cell, 0);
        context.lineTo(k * cell, size);
        context.moveTo(0, k * cell);
        context.lineTo(size, k * cell);
      }
      context.stroke();
    }
    const [i, j] = explorer.shownPair;
    context.lineWidth = 1.5;
    context.strokeStyle = paint.accent;
    context.strokeRect(0.75, i * cell, size - 1.5, cell);
    context.strokeStyle = paint.warm;
    context.strokeRect(j * cell, 0.75, cell, size - 1.5);
    context.lineWidth = 2.5;
    const side = Math.max(cell, 5);
    context.strokeRect((j + 0.5) * cell - side / 2, (i + 0.5) * cell - side / 2, side, side);
  }

  private pairAt(event: MouseEvent): Pair | null {
    const box = this.canvas.getBoundingClientRect();
    const n = this.explorer.graph.nodes;
    const i = Math.floor(((event.clientY - box.top) / box.height) * n);
    const j = Math.floor(((event.clientX - box.left) / box.width) * n);
    return i >= 0 && j >= 0 && i < n && j < n ? [i, j] : null;
  }
}
