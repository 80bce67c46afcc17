/** Elements whose text enters by textContent only: a name cannot become markup. */

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

type Child = Node | string;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => (typeof child === "string" ? document.createTextNode(child) : child)));
  return made;
}

export function svg(tag: string, attributes: Record<string, string | number> = {}, text = ""): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text) made.textContent = text;
  return made;
}

export function sub(letter: string, index: string): HTMLElement {
  return element("span", {}, letter, element("sub", {}, index));
}

/** A number as read: four significant digits at most, a true minus sign. */
export function shown(value: number): string {
  const size = Math.abs(value);
  const text = size === 0 || (size >= 1e-3 && size < 1e4) ? value.toFixed(size >= 100 ? 1 : 3) : value.toExponential(2);
  return text.replace(/-/g, "−");
}

/** A number whose full precision is in its attribute. */
export function number(value: number, id = ""): HTMLElement {
  return element("span", { "data-value": String(value), ...(id ? { id } : {}) }, shown(value));
}

export function seconds(value: number): string {
  return value < 1e-3 ? `${(value * 1e6).toFixed(0)} µs` : `${(value * 1e3).toFixed(value < 1e-2 ? 2 : 1)} ms`;
}

export function option(value: string, text: string): HTMLOptionElement {
  const made = element("option", {}, text);
  made.value = value;
  return made;
}
