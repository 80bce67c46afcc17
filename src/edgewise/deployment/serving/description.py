"""What the service says of itself: an OpenAPI description, and a page of it that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
from html import escape
from typing import Any

from edgewise import __version__
from edgewise.deployment.serving.requests import Limits
from edgewise.tasks.core.abilities import Predicts

ERRORS = {
    400: "The body is not JSON",
    408: "The body did not come in time",
    413: "The body, a row or their number is too large",
    415: "The content type is not application/json",
    421: "The host is another than the service's",
    422: "A row cannot be read: the error names it",
    503: "Too many rows wait, or the prediction took too long: try later",
}
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#222}
pre,textarea{background:#f4f4f4;padding:.7rem;overflow:auto;width:100%;box-sizing:border-box;border:1px solid #ccc}
pre,textarea,code{font:14px/1.4 ui-monospace,monospace} td{padding:.1rem 1rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#1b1b1b;color:#ddd}pre,textarea{background:#2a2a2a;color:#ddd}
a{color:#8cf}}"""
SCRIPT = """const [form, body, out] = ["form", "body", "out"].map((name) => document.getElementById(name));
form.onsubmit = async (event) => {
  event.preventDefault();
  out.textContent = "…";
  try {
    const headers = { "content-type": "application/json" };
    const response = await fetch("predict", { method: "POST", headers, body: body.value });
    out.textContent = `${response.status}\\n${JSON.stringify(await response.json(), null, 2)}`;
  } catch (error) {
    out.textContent = error;
  }
};
"""


def describe(task: Predicts, title: str, limits: Limits) -> dict[str, Any]:
    """The service as an OpenAPI document."""
    reads = " ".join((inspect.getdoc(task.predict) or "").split("\n\n")[0].split())
    row: dict[str, Any] = {"type": ["string", "number"], "maxLength": limits.characters}
    if task.files:
        sent = {"file": {"type": "string"}, "content": {"type": "string", "contentEncoding": "base64"}}
        reads += " A file travels in the request; paths are not read."
        file = {"type": "object", "properties": sent, "required": list(sent), "additionalProperties": False}
        row = {"anyOf": [row, file]}
    example = {"rows": [task.typical]}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": limits.rows, "description": reads}
    predictions = {"type": "array", "items": {"type": "object"}, "description": "One for each row, in their order."}
    errors = {
        str(status): {"description": what, **_holds(_object(error={"type": "string"}))}
        for status, what in ERRORS.items()
    }
    health = _object(status={"type": "string"}, rows={"type": "integer"})
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": f"{task.describe()}. {reads}"},
        "paths": {
            "/predict": {
                "post": {
                    "operationId": "predict",
                    "summary": "Predict for some rows",
                    "requestBody": {"required": True, **_holds(_object(rows=rows), example=example)},
                    "responses": {
                        "200": {"description": "Predictions", **_holds(_object(predictions=predictions))},
                        **errors,
                    },
                }
            },
            "/health": {
                "get": {
                    "operationId": "health",
                    "summary": "Whether it is ready, and the rows that it has predicted",
                    "responses": {"200": {"description": "It is", **_holds(health)}},
                }
            },
        },
    }


def page(openapi: dict[str, Any]) -> tuple[str, str]:
    """The description as a page on which a request can be tried, and the content policy that it needs."""
    info, predict = openapi["info"], openapi["paths"]["/predict"]["post"]
    codes = "".join(
        f"<tr><td><code>{code}</code></td><td>{escape(entry['description'])}</td></tr>"
        for code, entry in predict["responses"].items()
    )
    reads = predict["requestBody"]["content"]["application/json"]
    schema, example = (
        escape(json.dumps(reads["schema"], indent=2)),
        escape(json.dumps(reads["example"], ensure_ascii=False)),
    )
    title = escape(info["title"])
    html = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body><h1>{title}</h1><p>{escape(info["description"])}</p>
<h2><code>POST /predict</code></h2>
<form id="form"><label for="body">A request</label>
<textarea id="body" rows="4" spellcheck="false">{example}</textarea>
<p><button>Predict</button></p></form><pre id="out" aria-live="polite"></pre>
<table>{codes}</table><h3>What it reads</h3><pre>{schema}</pre>
<h2><code>GET /health</code></h2><p>{escape(openapi["paths"]["/health"]["get"]["summary"])}.</p>
<p>Edgewise {escape(info["version"])} · <a href="openapi.json">OpenAPI</a></p>
<script>{SCRIPT}</script></body></html>
"""
    allowed = {name: f"'sha256-{_digest(text)}'" for name, text in (("style", STYLE), ("script", SCRIPT))}
    sources = "; ".join(f"{name}-src {digest}" for name, digest in allowed.items())
    policy = f"default-src 'none'; {sources}; connect-src 'self'; img-src data:; frame-ancestors 'none'"
    return html, f"{policy}; base-uri 'none'; form-action 'none'"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _holds(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema, **more}}}


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
