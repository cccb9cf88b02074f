"""The style of a report: system fonts, light and dark, readable on paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fbfaf7;--fg:#22252b;--dim:#757a85;--line:#e3e0d8;--card:#fff;
--ok:#3f8f6b;--warn:#d19a2e;--bad:#c4493d;--bad2:#8e3a5e;
--c0:#3566a8;--c1:#c8742c;--c2:#3f8f6b;--c3:#8b5fa8;--c4:#b5485a;--c5:#4a8a99}
@media (prefers-color-scheme:dark){:root{--bg:#17191d;--fg:#e4e4e2;--dim:#9097a3;--line:#2d3138;
--card:#1e2126;--ok:#5db48d;--warn:#e0b355;--bad:#e2766b;--bad2:#c77ba0;
--c0:#7ba6e0;--c1:#e59a5b;--c2:#6cc29b;--c3:#b795d2;--c4:#e08595;--c5:#7fbccb}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);
font:15px/1.55 ui-sans-serif,system-ui,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{max-width:1060px;margin:0 auto;padding:36px 24px 60px}
h1{font-size:30px;line-height:1.2;margin:0 0 4px;letter-spacing:-.015em}
h2{font-size:18px;margin:0 0 12px}
header{margin-bottom:28px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;margin:18px 0 0}
dl div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
dt{color:var(--dim);font-size:12px}dd{margin:0;font-size:17px;font-variant-numeric:tabular-nums}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 22px;
margin-bottom:20px}
.dim{color:var(--dim);font-size:13px}
figure{margin:0}figcaption{color:var(--dim);font-size:13px;margin-bottom:8px}
svg{max-width:100%;height:auto;font:12px ui-sans-serif,system-ui,sans-serif}
svg.bar{border-radius:4px;display:block}
svg text{fill:var(--fg)}svg text.dim{fill:var(--dim);font-size:11px}
svg .grid{stroke:var(--line)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;font-size:12px;text-align:left;white-space:nowrap}
th,td{padding:8px 12px 8px 0;border-bottom:1px solid var(--line);vertical-align:top}
tbody tr:last-child td{border-bottom:0}
.badge{display:inline-block;font-size:11px;font-weight:500;padding:1px 8px;border-radius:9px;
border:1px solid var(--line);color:var(--dim);margin:0 4px 2px 0;vertical-align:middle}
.badge.good{color:var(--ok);border-color:var(--ok)}.badge.part{color:var(--bad);border-color:var(--bad)}
details{border-bottom:1px solid var(--line);padding:10px 0}details:last-child{border-bottom:0}
summary{cursor:pointer}details p{white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0}
i{color:var(--dim);font-style:normal;font-size:12px;margin-right:6px}
code{font-size:12px;overflow-wrap:anywhere}
footer{margin-top:30px}
@media print{section{break-inside:avoid;border-color:#ccc}body{background:#fff}}
"""
