/** Colours of the page's theme, for canvases, and of classes. */

export interface Palette {
  paper: string;
  ink: string;
  muted: string;
  rule: string;
  accent: string;
  warm: string;
}

export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: read("paper"),
    ink: read("ink"),
    muted: read("muted"),
    rule: read("rule"),
    accent: read("accent"),
    warm: read("warm"),
  };
}

// Okabe & Ito's colours, which readers with any colour vision tell apart
const CLASSES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00", "#7a6fd0", "#7f7f7f"];

export function ofClass(k: number): string {
  return k < CLASSES.length ? CLASSES[k] : `hsl(${(k * 137.508) % 360} 55% 52%)`;
}

/** From the rule's colour at 0 to the accent's at 1. */
export function mixed(from: string, to: string, share: number): string {
  const [a, b] = [rgb(from), rgb(to)];
  return `rgb(${a.map((value, k) => Math.round(value + share * (b[k] - value))).join(",")})`;
}

export function rgb(hex: string): [number, number, number] {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
