/** What the reader chose, as a link: `#graph=causal&i=3&j=1`. */

export const COLOURINGS = ["classes", "attention", "hops", "refinement"] as const;
export type Colouring = (typeof COLOURINGS)[number];
export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export interface State {
  example: number;
  graph: string;
  layer: number;
  head: number;
  i: number; // the receiver
  j: number; // the sender
  colouring: Colouring;
  round: number; // of colour refinement
  theme: Theme;
  toggled: [number, number][]; // edges that differ from the graph's own
}

export const START: State = {
  example: 0,
  graph: "",
  layer: 0,
  head: 0,
  i: 0,
  j: 0,
  colouring: "classes",
  round: 0,
  theme: "auto",
  toggled: [],
};

const MOST_EDITS = 10_000;

/** What differs from `start`, as a hash. */
export function toHash(state: State, start: State): string {
  const words = new URLSearchParams();
  for (const key of ["example", "layer", "head", "i", "j", "round"] as const)
    if (state[key] !== start[key]) words.set(key, String(state[key]));
  for (const key of ["graph", "colouring", "theme"] as const)
    if (state[key] !== start[key]) words.set(key, state[key]);
  if (state.toggled.length) words.set("edits", state.toggled.map((pair) => pair.join(".")).join("_"));
  return `#${words.toString()}`;
}

/** Any hash gives a state: what is unknown or out of bounds is left at the start's. */
export function fromHash(hash: string, start: State): State {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { ...start, toggled: [] };
  for (const key of ["example", "layer", "head", "i", "j", "round"] as const) {
    const text = words.get(key) ?? "";
    if (/^\d{1,6}$/.test(text)) state[key] = Number(text);
  }
  state.graph = words.get("graph") ?? start.graph;
  state.colouring = COLOURINGS.find((name) => name === words.get("colouring")) ?? start.colouring;
  state.theme = THEMES.find((name) => name === words.get("theme")) ?? start.theme;
  for (const pair of (words.get("edits") ?? "").split("_").slice(0, MOST_EDITS)) {
    const found = /^(\d{1,6})\.(\d{1,6})$/.exec(pair);
    if (found) toggle(state.toggled, Number(found[1]), Number(found[2]));
  }
  return state;
}

/** Note an edit, or take it back. */
export function toggle(toggled: [number, number][], i: number, j: number): void {
  const at = toggled.findIndex(([a, b]) => a === i && b === j);
  if (at < 0) toggled.push([i, j]);
  else toggled.splice(at, 1);
}
