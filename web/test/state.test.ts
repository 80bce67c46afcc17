import { describe, expect, test } from "vitest";
import { fromHash, START, toggle, toHash, type State } from "../src/state.js";

describe("a link", () => {
  test("restores every choice", () => {
    const state: State = { example: 2, graph: "causal", layer: 1, head: 3, i: 4, j: 5, colouring: "hops", round: 2, theme: "dark", toggled: [[0, 1], [7, 3]] };
    expect(fromHash(toHash(state, START), START)).toEqual(state);
  });
  test("of the start is short", () => expect(toHash({ ...START }, START)).toBe("#"));
  test("whose words are wrong gives the start", () =>
    expect(fromHash("#layer=-1&head=1e9&i=x&colouring=<b>&theme=red&edits=1.2.3_a.b_-1.2", START)).toEqual({ ...START }));
  test("that toggles a pair twice leaves it", () => expect(fromHash("#edits=1.2_1.2", START).toggled).toEqual([]));
});

test("an edit is taken back by the same edit", () => {
  const toggled: [number, number][] = [];
  toggle(toggled, 1, 2);
  toggle(toggled, 2, 1);
  toggle(toggled, 1, 2);
  expect(toggled).toEqual([[2, 1]]);
});
