import { describe, expect, test } from "vitest";
import { ACTIVATIONS, erf } from "../src/forward.js";
import { Graph, hops, refine } from "../src/graph.js";
import { averaged, dirichletEnergy, largest, predicted, softmax } from "../src/measures.js";

const path = new Graph(4, [[1], [0, 2], [1, 3], [2]]);

test("erf is that of tables", () => {
  // Abramowitz & Stegun, table 7.1
  for (const [t, value] of [[0, 0], [0.5, 0.5204998778], [1, 0.8427007929], [2, 0.995322265], [2.6, 0.9997639656], [4, 0.9999999846]])
    expect(Math.abs(erf(t) - value)).toBeLessThan(1e-10);
  for (const t of [0.3, 2.49999, 2.50001, 7]) expect(erf(-t)).toBe(-erf(t));
  expect(Math.abs(erf(2.5 - 1e-9) - erf(2.5 + 1e-9))).toBeLessThan(1e-11);
});

test("activations at 0 and far out", () => {
  for (const name of ["relu", "gelu", "gelu-tanh", "silu", "tanh", "elu"]) expect(ACTIVATIONS[name](0)).toBe(0);
  expect(ACTIVATIONS["gelu"](30)).toBe(30);
  expect(ACTIVATIONS["elu"](-50)).toBe(-1);
});

describe("a graph", () => {
  test("is edited by pairs, and the same pairs take it back", () => {
    const edited = path.toggled([[0, 3], [1, 2]]);
    expect([edited.sendersOf(0), edited.sendersOf(1), edited.edges]).toEqual([[1, 3], [0], 6]);
    expect(edited.toggled([[0, 3], [1, 2]]).senders).toEqual(path.senders);
    expect([edited.edge(0, 3) >= 0, edited.edge(1, 2)]).toEqual([true, -1]);
  });
  test("has every edge both ways", () =>
    expect(new Graph(3, [[0, 1], [], [1]]).symmetric().toggled([]).senders).toEqual(Int32Array.of(0, 1, 0, 2, 1)));
  test("has distances along its senders", () => expect([...hops(new Graph(3, [[1], [], [0]]), 0)]).toEqual([0, 1, -1]));
  test("is refined until no class splits", () =>
    expect(refine(path).map((colours) => [...colours])).toEqual([[0, 0, 0, 0], [0, 1, 1, 0]]));
  test("without nodes or edges is refined at once", () => {
    expect(refine(new Graph(0, []))).toHaveLength(1);
    expect(refine(new Graph(2, [[], []]))).toHaveLength(1);
  });
});

describe("measures", () => {
  test("energy of a pair is that of the documentation", () => {
    const pair = new Graph(2, [[1], [0]]);
    expect(dirichletEnergy(pair, Float64Array.of(1, 3), 1)).toBeCloseTo(2 / 10, 14);
    expect(dirichletEnergy(pair, Float64Array.of(0, 0), 1)).toBe(0);
  });
  test("averaging by attention repeats", () => {
    const states = averaged(new Graph(2, [[0, 1], [1]]), Float64Array.of(0.5, 0.5, 1), 1, Float64Array.of(0, 8), 1, 2);
    expect(states.map((x) => [...x])).toEqual([[0, 8], [4, 8], [6, 8]]);
  });
  test("times lie on lines between logarithms", () => {
    const known = { nodes: 9, edges: [10, 1000], seconds: { a: [1e-6, 1e-4], b: [2e-6, 2e-6] } };
    expect(predicted(known, 100).map(({ backend }) => backend)).toEqual(["b", "a"]);
    expect(predicted(known, 100)[1].seconds).toBeCloseTo(1e-5, 12);
    expect(predicted(known, 1)[0].seconds).toBeCloseTo(1e-6, 12);
    expect(predicted({ nodes: 1, edges: [1], seconds: { a: [3e-6] } }, 1)[0].seconds).toBeCloseTo(3e-6, 12);
  });
  test("softmax of large numbers sums to 1", () => {
    expect([...softmax(Float64Array.of(1000, 1000))]).toEqual([0.5, 0.5]);
    expect(largest(Float64Array.of(1, 3, 2))).toBe(1);
  });
});
