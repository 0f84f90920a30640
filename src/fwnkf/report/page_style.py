"""The style sheet of a report: light and dark, from the width of a phone to that of a desk."""

STYLE = """
:root{--paper:#fff;--ink:#1b1f24;--soft:#59636e;--line:#d8dee4;--panel:#f6f8fa;--grid:#e3e3e3;--dots:#8c8c8c;
--link:#0a58a8;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b8568f;--c4:#b87a00;--c5:#3d9bd1;
--good:#1a7f37;--info:#0a58a8;--warning:#8a5a00;--bad:#c62828;
--good-back:#e9f7ed;--info-back:#eaf3fc;--warning-back:#fff6dc;--bad-back:#fdecec}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6e9ec;--soft:#a3adb8;--line:#363d46;--panel:#1c2127;
--grid:#2f353d;--dots:#8c949d;--link:#7cb8f2;--c0:#58a9e0;--c1:#f58b4b;--c2:#35c296;--c3:#e29bc6;--c4:#e8b84a;--c5:#a5d8ff;
--good:#63d184;--info:#7cb8f2;--warning:#efc04f;--bad:#ff8080;
--good-back:#14281b;--info-back:#142433;--warning-back:#2e2610;--bad-back:#351a1c}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
header,main{max-width:1180px;margin:0 auto;padding:0 16px}
header{padding-top:20px}
main{padding-bottom:48px}
h1{font-size:1.35rem;line-height:1.25;margin:0}
header p{margin:4px 0 12px;color:var(--soft);font-size:.92rem}
h2{font-size:1.15rem;line-height:1.3;margin:0 0 4px}
section{border-top:1px solid var(--line);margin-top:28px;padding-top:20px}
p.answer{margin:0 0 14px;max-width:48rem}
a{color:var(--link)}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--panel);
padding:0 3px;border-radius:3px}
.notice{border:1px solid var(--line);border-left:6px solid var(--tone);background:var(--back);border-radius:6px;
padding:12px 14px;margin:10px 0}
.notice.good{--tone:var(--good);--back:var(--good-back)}
.notice.info{--tone:var(--info);--back:var(--info-back)}
.notice.warning{--tone:var(--warning);--back:var(--warning-back)}
.notice.failure{--tone:var(--bad);--back:var(--bad-back)}
.notice p.what{margin:0;font-weight:600}
main>.notice:first-child p.what{font-size:1.1rem}
.badge{display:inline-block;color:var(--tone);font-weight:700;margin-right:6px;white-space:nowrap}
.sign{display:inline-block;width:1.35em;height:1.35em;line-height:1.35em;border-radius:50%;text-align:center;
background:var(--tone);color:var(--back);font-size:.85em}
.notice dl{margin:8px 0 0;display:grid;grid-template-columns:minmax(6.2rem,max-content) 1fr;gap:3px 12px;
font-size:.95rem}
.notice dt{color:var(--soft)}
.notice details{margin:6px 0 0;font-size:.95rem}
.notice dd{margin:0}
dl.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:8px;margin:16px 0}
dl.facts div{background:var(--panel);border-radius:6px;padding:8px 12px}
dl.facts dt{color:var(--soft);font-size:.8rem}
dl.facts dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums}
nav{font-size:.92rem}
nav ol{margin:4px 0;padding-left:1.4em}
details{margin:8px 0}
summary{cursor:pointer;color:var(--link)}
.columns{display:grid;gap:0 32px;grid-template-columns:minmax(0,1fr)}
figure{margin:0 0 14px;max-width:560px}
figure.wide{max-width:860px}
figcaption,.caption{color:var(--soft);font-size:.86rem;margin:2px 0 6px}
.note{color:var(--soft);font-size:.9rem;margin:8px 0}
.scroll{overflow-x:auto}
svg.plot{display:block;width:100%;height:auto}
svg.plot *{stroke-linejoin:round}
svg.plot text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--ink)}
figure.wide svg.plot{min-width:560px}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:normal;white-space:nowrap}
th{color:var(--soft);font-weight:600;vertical-align:bottom}
th.number,td.number{text-align:right}
th{white-space:normal}
td.long{white-space:normal;min-width:11rem;overflow-wrap:anywhere}
@media (max-width:560px){.notice dl{grid-template-columns:1fr;gap:0}.notice dd{margin:0 0 6px}
table{font-size:.75rem;width:100%}th,td{white-space:normal;padding-right:6px}
td:first-child,td.long{overflow-wrap:anywhere}td:first-child{min-width:3.2rem}
td.number{white-space:nowrap}td.long{min-width:4.5rem}}
@media (min-width:900px){.columns{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}}
@media print{figure,.notice{break-inside:avoid}}
"""
"""Colours are variables, so that drawings follow the colour scheme; ``--c0`` to ``--c5`` are those of lines."""
