/** Where the nodes of a graph lie: rules by their shape, other graphs by forces that settle frame by frame. */
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY, type Simulation } from "d3-force";
import type { GraphChoice } from "./data.js";
import type { Graph } from "./graph.js";

export interface Place {
  x: number;
  y: number;
}

const SETTLED_AT_ONCE = 400; // nodes up to which the forces have settled before the first frame
const FAR = 30; // pixels between linked nodes

export class Layout {
  readonly places: Place[];
  private readonly simulation: Simulation<Place, undefined> | null;

  constructor(choice: GraphChoice, graph: Graph) {
    const { nodes } = graph;
    this.places = Array.from({ length: nodes }, (_, i) => onCircle(i, nodes));
    this.simulation = null;
    if (choice.places !== null) {
      const drawn = choice.places;
      this.places.forEach((place, i) => Object.assign(place, { x: drawn[2 * i] * FAR, y: drawn[2 * i + 1] * FAR }));
    } else if (choice.rule?.kind === "grid") {
      const { columns } = choice.rule;
      this.places.forEach((place, i) => {
        place.x = (i % columns) * FAR;
        place.y = Math.floor(i / columns) * FAR;
      });
    } else if (choice.rule === null) {
      this.simulation = settle(this.places, graph);
      if (nodes <= SETTLED_AT_ONCE) this.simulation.tick(300).alpha(0);
    }
  }

  get moving(): boolean {
    return this.simulation !== null && this.simulation.alpha() >= 0.02;
  }

  /** Whether the nodes moved. */
  step(): boolean {
    if (!this.moving) return false;
    this.simulation!.tick();
    return true;
  }
}

function onCircle(i: number, nodes: number): Place {
  const radius = (FAR * Math.max(nodes, 3)) / (2 * Math.PI);
  const angle = (2 * Math.PI * i) / Math.max(nodes, 1) - Math.PI / 2;
  return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
}

function settle(places: Place[], graph: Graph): Simulation<Place, undefined> {
  const links: { source: number; target: number }[] = [];
  for (let i = 0; i < graph.nodes; i++)
    for (const j of graph.sendersOf(i)) if (j < i || (j > i && graph.edge(j, i) < 0)) links.push({ source: j, target: i });
  const pull = graph.nodes > SETTLED_AT_ONCE ? 0.06 : 0.04;
  return forceSimulation(places)
    .force("link", forceLink<Place, { source: number; target: number }>(links).distance(FAR).strength(0.35))
    .force("charge", forceManyBody<Place>().strength(-120).theta(graph.nodes > SETTLED_AT_ONCE ? 1.2 : 0.7).distanceMax(500))
    .force("x", forceX<Place>().strength(pull))
    .force("y", forceY<Place>().strength(pull))
    .force("collide", graph.nodes > SETTLED_AT_ONCE ? null : forceCollide<Place>(11))
    .alphaDecay(0.03)
    .stop();
}
