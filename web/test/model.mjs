// Opens a page in Chromium, runs its model on some calls, and prints as JSON the outputs and every request beside the page's own.
//   echo '{"executable": "/usr/bin/chromium", "origin": "http://127.0.0.1:8000/", "calls": [{"x": ["call.x", "Float32Array", [5, 2]]}]}' | node test/model.mjs
import { readFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const job = JSON.parse(readFileSync(0, "utf8"));
const args = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"];
const browser = await puppeteer.launch({ executablePath: job.executable, headless: true, args });
const seen = { local: [], elsewhere: [], messages: [], errors: [], results: [] };
try {
  const page = await browser.newPage();
  page.on("console", (message) => seen.messages.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const url = request.url();
    const local = url.startsWith(job.origin) || url.startsWith("blob:") || url.startsWith("data:");
    (local ? seen.local : seen.elsewhere).push(url.slice(0, 200));
    return void (local ? request.continue() : request.abort());
  });
  await page.goto(`${job.origin}page.html`);
  await page.waitForFunction(() => typeof run === "function", { timeout: 60_000 });
  for (const call of job.calls) {
    seen.results.push(await page.evaluate(async (call) => {
      const inputs = {};
      for (const [name, [place, kind, shape]] of Object.entries(call)) {
        inputs[name] = [new globalThis[kind](await (await fetch(place)).arrayBuffer()), shape];
      }
      const outputs = await run(inputs);
      return Object.fromEntries(Object.entries(outputs).map(([name, { data, dims }]) => [name, { data: [...data], dims: [...dims] }]));
    }, call));
  }
  if (job.elsewhere) await page.evaluate((url) => fetch(url).catch(() => null), job.elsewhere);
} catch (error) {
  seen.errors.push(`driver: ${error.stack ?? error}`);
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
