// Builds src/ into the package, beside its page.html: page.css and page.js, whose first line has the hash of the sources.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = process.argv[2] ?? `${here}../src/edgewise/apps/explorer/`;
mkdirSync(out, { recursive: true });

// The same in edgewise's tests: every source and the lock file, by name, with the name and a zero byte before each.
const names = [...readdirSync(`${here}src`).map((name) => `src/${name}`), "build.mjs", "package-lock.json", "tsconfig.json"].sort();
const hash = createHash("sha256");
for (const name of names) hash.update(name).update("\0").update(readFileSync(`${here}${name}`));
const licence = readFileSync(`${here}node_modules/d3-force/LICENSE`, "utf8").trim(); // that of every d3 module
const banner = `sources sha256:${hash.digest("hex")}`;

const options = { bundle: true, minify: true, write: false, legalComments: "none", charset: "utf8" };
const script = await build({ ...options, entryPoints: [`${here}src/main.ts`], format: "iife", globalName: "explorer", target: "es2022" });
const style = await build({ ...options, entryPoints: [`${here}src/page.css`] });
writeFileSync(`${out}/page.js`, `/* ${banner} */\n/* With d3-force, d3-quadtree, d3-selection and d3-zoom:\n${licence} */\n${script.outputFiles[0].text}`);
writeFileSync(`${out}/page.css`, style.outputFiles[0].text);
