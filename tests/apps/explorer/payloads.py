"""A hundred names that would run as a script, make a request or break out, if a page took them for markup."""

RUN = "window.hit=1;alert(1)"
PARTS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</SCRIPT ><script>{RUN}</script>",
    f"<!--<script>{RUN}</script>-->",
    f"<!--</script><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'<img src="https://example.invalid/a.png" onerror="{RUN}">',
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<body onload={RUN}>",
    f"<iframe src='javascript:{RUN}'></iframe>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    f"<object data='javascript:{RUN}'></object>",
    f"<embed src='javascript:{RUN}'>",
    f"<a href='javascript:{RUN}'>a</a>",
    f"<form action='javascript:{RUN}'><input autofocus onfocus={RUN}></form>",
    "<base href='https://example.invalid/'>",
    "<link rel=stylesheet href='https://example.invalid/a.css'>",
    "<meta http-equiv=refresh content='0;url=https://example.invalid/'>",
    "<style>@import 'https://example.invalid/a.css';</style>",
    f"<details open ontoggle={RUN}>",
    f"<video src=x onerror={RUN}></video>",
    f"<math><mtext></math><img src=x onerror={RUN}>",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
]
BREAKS = ["{}", '">{}', "'>{}", "\u2028{}\u0000]]>"]
PAYLOADS = [way.format(part) for part in PARTS for way in BREAKS]
assert len(PAYLOADS) == len(set(PAYLOADS)) == 100
