// Opens a page in a browser whose every request is aborted, does what the job says, and prints what it saw as JSON.
//   node test/browser.mjs '{"browser": "chrome", "executable": "/usr/bin/chromium", "page": "/tmp/explorer.html", ...}'
import { readFileSync } from "node:fs";
import { pathToFileURL, fileURLToPath } from "node:url";
import puppeteer from "puppeteer-core";

const job = JSON.parse(process.argv[2] === "-" ? readFileSync(0, "utf8") : process.argv[2]);
const address = pathToFileURL(job.page).href;
const args = job.browser === "chrome" ? ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"] : [];
const browser = await puppeteer.launch({ browser: job.browser, executablePath: job.executable, headless: true, args });
const seen = { requests: [], messages: [], errors: [], dialogs: [], results: {} };

async function open(hash = "", { width = 1400, height = 900, dark = false } = {}) {
  const page = await browser.newPage();
  await page.setViewport({ width, height });
  if (job.browser === "chrome") await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  page.on("console", (message) => seen.messages.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("dialog", (dialog) => { seen.dialogs.push(dialog.message()); void dialog.dismiss(); });
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const url = request.url();
    if (url.split("#")[0] === address) return void request.continue();
    seen.requests.push(url.slice(0, 200));
    return void request.abort();
  });
  await page.goto(address + hash);
  await page.waitForFunction(() => typeof explorer === "object" && explorer.page !== null, { timeout: 20_000 });
  return page;
}

const settle = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

const steps = {
  // The numbers that the page holds after each list of edits, and those that its equation shows.
  async numbers({ cases }) {
    const page = await open();
    const found = [];
    for (const { graph, edits, i, j, layer, head } of cases) {
      found.push(await page.evaluate((graph, edits, i, j, layer, head) => {
        const { app } = explorer.page;
        app.set({ graph });
        app.toggle(...edits);
        app.set({ i, j, layer, head });
        const read = (id) => document.getElementById(id)?.getAttribute("data-value")?.split(" ").map(Number) ?? null;
        return {
          edges: app.graph.edges,
          outputs: [...app.result.outputs],
          states: app.result.traces.map(({ result }) => [...result]),
          p: app.result.traces.map(({ p }) => [...p]),
          s: app.result.traces.map(({ s }) => [...s]),
          shown: { s: read("s-value"), p: read("p-value"), part: read("part"), y: read("y"), x: read("x"), energy: read("energy") },
          hash: location.hash,
        };
      }, graph, edits, i, j, layer, head));
    }
    await page.close();
    return found;
  },

  // Frames drawn a second while the graph settles and then while it is dragged.
  async frames({ seconds = 3 }) {
    const page = await open();
    const rate = (move) => page.evaluate((seconds, move) => new Promise((done) => {
      const canvas = document.getElementById("network");
      const box = canvas.getBoundingClientRect();
      const send = (type, x, buttons) => canvas.dispatchEvent(new WheelEvent(type, { clientX: box.x + x, clientY: box.y + 200, deltaY: x % 2 ? 30 : -30, buttons, bubbles: true, cancelable: true }));
      const start = performance.now();
      let count = 0;
      const frame = (now) => {
        if (now - start > 1000 * seconds || (!move && !explorer.page.app.layout.moving)) return done((1000 * count) / (now - start));
        count++;
        if (move) send("wheel", 150 + (count % 7), 0);
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    }), seconds, move);
    const result = { settling: await rate(false), zooming: await rate(true), nodes: await page.evaluate(() => explorer.page.app.graph.nodes), edges: await page.evaluate(() => explorer.page.app.graph.edges) };
    await page.close();
    return result;
  },

  // A click on two nodes, keys, and the link that restores all of it.
  async interaction() {
    const page = await open();
    await page.select("#colouring", "hops");
    await page.focus("#network");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    const edges = () => page.evaluate(() => explorer.page.app.graph.edges);
    const before = await edges();
    await page.keyboard.press("Enter");
    const after = await edges();
    const clicked = await page.evaluate(() => {
      const canvas = document.getElementById("network");
      const box = canvas.getBoundingClientRect();
      const click = (node) => {
        const { x, y } = explorer.page.placeOf(node);
        canvas.dispatchEvent(new MouseEvent("click", { clientX: box.x + x, clientY: box.y + y, bubbles: true }));
      };
      document.querySelector("input[value=edit]").click();
      click(5);
      click(20);
      return [explorer.page.app.graph.edge(5, 20) >= 0, explorer.page.app.state.i, explorer.page.app.state.j];
    });
    const hovered = await page.evaluate(() => {
      const canvas = document.getElementById("matrix");
      const box = canvas.getBoundingClientRect();
      const n = explorer.page.app.graph.nodes;
      const read = () => document.getElementById("s-value").getAttribute("data-value");
      const before = read();
      canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.x + (1.5 / n) * box.width, clientY: box.y + (2.5 / n) * box.height, bubbles: true }));
      const pair = [...explorer.page.app.shownPair];
      const during = read();
      canvas.dispatchEvent(new PointerEvent("pointerleave", {}));
      return { pair, changed: during !== before, back: read() === before };
    });
    await page.click("#theme");
    await settle(page);
    const hash = await page.evaluate(() => location.hash);
    const state = await page.evaluate(() => JSON.stringify(explorer.page.app.state));
    const again = await open(hash);
    const restored = await again.evaluate(() => JSON.stringify(explorer.page.app.state));
    const result = { before, after, clicked, hovered, hash, state, restored, theme: await again.evaluate(() => document.documentElement.dataset.theme ?? null) };
    await page.close();
    await again.close();
    return result;
  },

  async axe() {
    const source = readFileSync(fileURLToPath(new URL("../node_modules/axe-core/axe.min.js", import.meta.url)), "utf8");
    const found = [];
    for (const [hash, look] of [["", {}], ["#theme=dark&colouring=refinement", {}], ["#colouring=attention", { width: 360, height: 740 }]]) {
      const page = await open(hash, look);
      await page.evaluate(source);
      const { violations } = await page.evaluate(() => axe.run());
      for (const { id, nodes } of violations) found.push(`${hash} ${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join("; ")}`);
      await page.close();
    }
    return found;
  },

  // How far the page is wider than the screen.
  async overflow() {
    const page = await open("", { width: 360, height: 740 });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    await page.close();
    return width;
  },

  async screenshots({ shots }) {
    for (const { path, hash = "", full = true, ...look } of shots) {
      const page = await open(hash, look);
      await settle(page);
      await page.screenshot({ path, fullPage: full });
      await page.close();
    }
    return shots.length;
  },

  // Whether any payload ran: each would set window.hit, open a dialog, make a request or leave an element behind.
  async payloads({ hash = "" }) {
    const page = await open(hash);
    await settle(page);
    for (const graph of await page.evaluate(() => explorer.page.app.example.graphs.map(({ name }) => name))) {
      await page.evaluate((graph) => explorer.page.app.set({ graph, colouring: "classes" }), graph);
      await page.evaluate(() => { for (let i = 0; i < explorer.page.app.graph.nodes; i++) explorer.page.app.set({ i, j: i }); });
    }
    const result = await page.evaluate(() => ({
      hit: typeof window.hit,
      scripts: document.scripts.length,
      foreign: [...document.querySelectorAll("img, iframe, object, embed, link, base, form, video, audio, math, a, [onerror], [onload], [onclick]")].length,
      title: document.title,
      names: [...document.querySelectorAll("#receiver option")].map((one) => one.textContent),
    }));
    await page.close();
    return result;
  },
};

try {
  for (const { step, ...options } of job.steps) seen.results[step] = await steps[step](options);
} catch (error) {
  seen.errors.push(`driver: ${error.stack ?? error}`);
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
