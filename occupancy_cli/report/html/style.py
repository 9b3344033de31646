"""The look of a page: one column, light and dark by the reader's setting, a phone's width and paper too.

Colours are Okabe and Ito's ("Color Universal Design", 2008), which people with any colour vision tell apart; text has a
contrast of 7 to 1 and more against its ground.
"""

from __future__ import annotations

from occupancy_cli.report.html.markup import Html, tag

_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--panel:#f4f5f7;--ink:#1b1f24;--soft:#4b5563;--faint:#9aa1ab;--grid:#e3e6ea;
--now:#b34a00;--use:#0072b2;--best:#007a5a;--binds:#b34a00;--idle:#b9c1cb;--link:#0058a3;--warn:#8a3b00}
@media (prefers-color-scheme:dark){:root{--ground:#14171a;--panel:#1e2328;--ink:#eceff2;--soft:#b7c0ca;--faint:#6c7681;
--grid:#2c333a;--now:#f0a14a;--use:#66b8f0;--best:#4fd0a4;--binds:#f0a14a;--idle:#4a545e;--link:#8cc8ff;--warn:#ffb77a}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main,header,footer{max-width:780px;margin:0 auto;padding:0 18px}
h1{font-size:1.55rem;line-height:1.25;margin:1.2rem 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--grid)}
h3{font-size:1rem;margin:0 0 .2rem}
p{margin:.3rem 0 .7rem;overflow-wrap:anywhere}
.soft{color:var(--soft)}
.answers{display:grid;grid-template-columns:repeat(3,1fr);gap:12px;margin:1rem 0}
.answers section{background:var(--panel);border-radius:8px;padding:12px 14px;min-width:0}
.answers h2{font-size:.85rem;font-weight:600;color:var(--soft);border:0;margin:0;padding:0}
.answers .big{font-size:1.15rem;font-weight:650;line-height:1.3;margin:.15rem 0 .35rem;overflow-wrap:anywhere}
.answers p{font-size:.9rem}
pre{background:var(--panel);border-radius:8px;padding:10px 12px;overflow-x:auto;font:13px/1.5 ui-monospace,monospace}
figure{margin:1.4rem 0}figcaption{margin-bottom:.4rem}
svg{display:block;width:100%;height:auto}.narrow{display:none}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--link);font-size:.9rem}
.scroll{overflow-x:auto;max-height:28rem;overflow-y:auto}
td.t{min-width:13rem}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
.scroll>p{margin:.3rem 0;font-size:.86rem}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
th{font-weight:600}tbody th{font-weight:400}.n{text-align:right;white-space:nowrap}
ul{padding-left:1.2rem;margin:.3rem 0}li{margin:.2rem 0;overflow-wrap:anywhere}
.warn{color:var(--warn)}a{color:var(--link)}footer{padding:1.5rem 18px 3rem;font-size:.85rem;color:var(--soft)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
@media (max-width:640px){th,td{padding-right:.45rem}table{font-size:.8rem}.answers{grid-template-columns:1fr}.wide{display:none}.narrow{display:block}h1{font-size:1.3rem}}
@media print{:root{color-scheme:light;--ground:#fff;--panel:#f4f5f7;--ink:#000;--soft:#333;--faint:#888;--grid:#ddd;
--now:#b34a00;--use:#0072b2;--best:#007a5a;--binds:#b34a00;--idle:#b9c1cb}
.wide{display:block}.narrow{display:none}figure,.answers section,tr{break-inside:avoid}h2,h3{break-after:avoid}
.answers{grid-template-columns:repeat(3,1fr)}summary{display:none}.scroll{overflow:visible;max-height:none}
table{max-width:100%;font-size:.62rem}th,td{padding-right:.3rem;overflow-wrap:anywhere}td.t{min-width:0}}
"""

STYLE: Html = tag("style", Html(_STYLE))
