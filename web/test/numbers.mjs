// Computes cases with the built page.js, in node and without a page: JSON {script, jobs: [{page, cases}]} on stdin, results on stdout.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const { script, jobs } = JSON.parse(readFileSync(0, "utf8"));
const context = vm.createContext({ atob, URLSearchParams, setTimeout, clearTimeout, setInterval, clearInterval, performance }); // the last five are d3's
vm.runInContext(readFileSync(script, "utf8"), context);
const { Explorer, dirichletEnergy, refine, hops } = context.explorer;
const results = jobs.map(({ page, cases }) => {
  const app = new Explorer(page);
  return cases.map((one) => compute(app, one));
});
console.log(JSON.stringify(results));

function compute(app, { example = 0, graph, edits = [], node = 0 }) {
  app.set({ example, graph });
  app.toggle(...edits);
  const { traces, outputs } = app.result;
  const states = [...traces.map(({ x }) => x), traces.at(-1).result];
  return {
    edges: app.graph.edges,
    outputs: [...outputs],
    states: states.map((x) => [...x]),
    s: traces.map(({ s }) => [...s]),
    p: traces.map(({ p }) => [...p]),
    energy: states.map((x) => dirichletEnergy(app.graph, x, app.weights.width)),
    colours: refine(app.graph).map((colours) => [...colours]),
    hops: [...hops(app.graph, node)],
    plan: app.plan(),
  };
}
