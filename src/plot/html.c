/*
 * html.c - text that becomes a page, and the style of the page.
 */
#include "plot/report.h"
#include "base/macros.h"
#include "base/utf8.h"

#include "plot/axes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character at text; 0 if it is malformed or a control character. */
static size_t letter(const char *text)
{
    const unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    const bool control =
        first < 0x20 || first == 0x7f || (first == 0xc2 && second < 0xa0);

    return control ? 0 : sonde__utf8_length(text);
}

static void put_text(sonde_text *page, const char *text)
{
    static const struct {
        char letter;
        const char *text;
    } escapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (const char *p = text; *p != '\0';) {
        const size_t size = letter(p);
        const char *escape = size == 0 ? SONDE__REPLACEMENT : NULL;

        for (size_t i = 0; i < SONDE_COUNT_OF(escapes); i++) {
            escape = *p == escapes[i].letter ? escapes[i].text : escape;
        }
        if (escape != NULL) {
            sonde_text_add(page, escape);
        } else {
            sonde_text_put(page, p, size);
        }
        p += size > 0 ? size : 1;
    }
}

static void put_number(sonde_text *page, double value, int digits)
{
    char text[64];

    if (isnan(value)) {
        sonde_text_add(page, "NaN");
    } else if (isinf(value)) {
        sonde_text_add(page, value > 0.0 ? "∞" : "−∞");
    } else {
        const char *shown = sonde__plot_short_number(value, digits, text, sizeof text);
        const char *exponent = strchr(shown, 'e');

        if (exponent != NULL) { /* 1e-7, not 1e-07; 1e9, not 1e+09 */
            sonde_text_put(page, shown, (size_t)(exponent - shown));
            sonde_text_format(page, "e%ld", strtol(exponent + 1, NULL, 10));
        } else {
            sonde_text_add(page, shown);
        }
    }
}

/* One directive of a template; takes its values from args. */
static void put_value(sonde_text *page, char directive, va_list *args)
{
    char text[64];
    uint64_t count = 0;

    switch (directive) {
    case 'e':
        put_text(page, va_arg(*args, const char *));
        break;
    case 's':
        sonde_text_add(page, va_arg(*args, const char *));
        break;
    case 'd':
        sonde_text_format(page, "%" PRId64, va_arg(*args, int64_t));
        break;
    case 'n':
        count = va_arg(*args, uint64_t);
        sonde_text_add(page, sonde__plot_grouped(count, text, sizeof text));
        break;
    case 'c':
        count = va_arg(*args, uint64_t);
        sonde_text_format(page, "%s %s%s", sonde__plot_grouped(count, text, sizeof text),
                          va_arg(*args, const char *), count == 1 ? "" : "s");
        break;
    case 'f':
        sonde_text_format(page, "%.1f", va_arg(*args, double));
        break;
    case 'g':
        put_number(page, va_arg(*args, double), 4);
        break;
    case 'h':
        put_number(page, va_arg(*args, double), 3);
        break;
    default:
        sonde_text_put(page, &directive, 1);
        break;
    }
}

void sonde__report_put(sonde_text *page, const char *template, ...)
{
    va_list args;

    va_start(args, template);
    for (const char *p = template; *p != '\0';) {
        const size_t plain = strcspn(p, "%");

        sonde_text_put(page, p, plain);
        p += plain;
        if (p[0] == '%' && p[1] != '\0') {
            put_value(page, p[1], &args);
            p += 2;
        }
    }
    va_end(args);
}

/* === style ========================================================================== */

const char *const sonde__report_style[] = {
    /* colours, texts */
    ":root{--paper:#f5f6f8;--card:#fff;--ink:#18202a;--muted:#5b6673;--rule:#e2e6ea;"
    "--line:#2563a8;--second:#c2571a;--error:#c0262d;--warning:#a85f00;--note:#2563a8;"
    "--sound:#1a7f45;--wash:#eef2f6;--held:#c0262d14;--bad:#c0262d2e;--grid:#e9edf0}\n"
    "@media "
    "(prefers-color-scheme:dark){:root{--paper:#11151a;--card:#191f26;--ink:#e4e8ec;"
    "--muted:#98a3af;--rule:#2b333d;--line:#6cb0f5;--second:#f0995c;--error:#ff7b7f;"
    "--warning:#eeb04e;--note:#6cb0f5;--sound:#5fce8e;--wash:#222a33;--held:#ff7b7f1f;"
    "--bad:#ff7b7f3d;--grid:#262e37}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:1.5rem clamp(.9rem,4vw,2.5rem) 4rem;max-width:64rem;"
    "background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"Noto Sans\",\"DejaVu Sans\",sans-serif;"
    "-webkit-text-size-adjust:100%}\n"
    "code{font:.92em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\","
    "monospace;overflow-wrap:anywhere}\n"
    "a{color:inherit;text-decoration-color:var(--muted);text-underline-offset:.15em}\n"
    "h1,h2,h3,p,ul,dl,figure{margin:0}\n"
    "h1{font-size:1.7rem;line-height:1.2;overflow-wrap:anywhere}\n"
    "h2{font-size:1.15rem;margin-bottom:.5rem}\n"
    "h3{font-size:1.05rem;margin-bottom:.3rem;overflow-wrap:anywhere}\n"
    "h2.part{margin:2rem 0 -.4rem}\n"
    "small,.kind,.summary,.more,.state,figcaption,dt,th,.from{color:var(--muted)}\n"
    "small{font-size:.86em}\n"
    ".kind{font-size:.85rem;letter-spacing:.04em}\n"
    "header{margin-bottom:1rem}\n",
    /* verdict */
    ".verdict{border-radius:.6rem;padding:1.1rem 1.3rem;background:var(--card);"
    "border:1px solid var(--rule);border-left:.45rem solid var(--muted)}\n"
    ".verdict h2{font-size:1.5rem;line-height:1.25;margin-bottom:.35rem}\n"
    ".verdict .lead{font-size:1.05rem;margin-bottom:.35rem}\n"
    ".verdict.error{border-left-color:var(--error)}.verdict.error "
    "h2{color:var(--error)}\n"
    ".verdict.warning{border-left-color:var(--warning)}"
    ".verdict.warning h2{color:var(--warning)}\n"
    ".verdict.note{border-left-color:var(--note)}.verdict.note h2{color:var(--note)}\n"
    ".verdict.sound{border-left-color:var(--sound)}.verdict.sound "
    "h2{color:var(--sound)}\n"
    ".verdict .state{margin-top:.4rem}\n",
    /* when */
    ".when{margin-top:.8rem;padding:.7rem 1.3rem;background:var(--card);"
    "border:1px solid var(--rule);border-radius:.6rem;font-size:.92rem}\n"
    ".when a{display:grid;grid-template-columns:minmax(8rem,15rem) 1fr 5.5rem;gap:.9rem;"
    "align-items:center;text-decoration:none;padding:.12rem 0}\n"
    ".when .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\n"
    ".when a:hover .name{text-decoration:underline}\n"
    ".when .from{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".lane{position:relative;height:.75rem;background:var(--wash);border-radius:.2rem;"
    "overflow:hidden}\n"
    ".lane i{position:absolute;top:0;bottom:0;min-width:3px;background:var(--muted);"
    "opacity:.42;border-left:3px solid}\n"
    ".lane .error{background:var(--error);border-color:var(--error)}"
    ".lane .warning{background:var(--warning);border-color:var(--warning)}"
    ".lane .note{background:var(--note);border-color:var(--note)}\n",
    /* cards */
    ".card{margin-top:1.1rem;padding:1.1rem 1.3rem;background:var(--card);"
    "border:1px solid var(--rule);border-radius:.6rem;break-inside:avoid}\n"
    ".card.error{border-top:.2rem solid var(--error)}"
    ".card.warning{border-top:.2rem solid var(--warning)}"
    ".card.note{border-top:.2rem solid var(--note)}\n"
    ".badge{display:inline-block;font-size:.72rem;font-weight:700;letter-spacing:.03em;"
    "padding:.1rem .5rem;border-radius:1rem;border:1px solid;vertical-align:.12em}\n"
    ".badge.error{color:var(--error)}.badge.warning{color:var(--warning)}"
    ".badge.note{color:var(--note)}\n"
    ".summary::first-letter{text-transform:uppercase}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));"
    "gap:.6rem 1.4rem;margin:.7rem 0}\n"
    ".facts dt{font-size:.82rem}.facts dd{margin:0;overflow-wrap:anywhere}\n"
    ".message{margin:.7rem 0}\n"
    ".advice{margin:.9rem 0 .4rem;padding:.6rem .9rem;background:var(--wash);"
    "border-radius:.4rem}\n"
    ".advice b{margin-right:.5rem}\n"
    ".more{margin-top:.4rem;font-size:.92rem}\n"
    "details{margin-top:.6rem;font-size:.92rem;color:var(--muted)}"
    "details p{margin-top:.3rem}summary{cursor:pointer}\n",
    /* curves */
    "figcaption{font-size:.88rem;margin-bottom:.4rem}figcaption code{color:var(--ink)}"
    "figcaption i{font-style:normal}\n"
    ".key{margin-left:.9rem;white-space:nowrap}"
    ".key::before{content:\"\";display:inline-block;width:1.1em;height:.2em;"
    "margin-right:.35em;vertical-align:.25em;background:var(--line)}"
    ".key.second::before{background:var(--second)}"
    ".key.bad::before{height:.8em;vertical-align:-.05em;background:var(--bad)}\n"
    ".frame{display:grid;grid-template-columns:4rem 1fr;row-gap:.2rem;font-size:.78rem;"
    "color:var(--muted);font-variant-numeric:tabular-nums}\n"
    ".ys,.xs,.area{position:relative}.ys{height:11rem}.xs{grid-column:2;height:1.3rem}\n"
    ".area{height:11rem;border:solid var(--rule);border-width:0 0 1px 1px}\n"
    ".area svg{position:absolute;width:100%;height:100%}\n"
    ".ys "
    "span{position:absolute;right:.5rem;transform:translateY(-50%);white-space:nowrap}\n"
    ".xs span{position:absolute;transform:translateX(-50%);white-space:nowrap}\n"
    ".tag{position:absolute;white-space:nowrap;line-height:1.25;padding:0 .3rem;"
    "background:var(--card);border-radius:.2rem}\n"
    ".tag.at{top:.15rem;margin-left:.3rem;color:var(--error)}"
    ".tag.at.before{transform:translateX(-100%);margin-left:-.3rem}\n"
    ".tag.limit{right:.3rem;transform:translateY(-115%)}"
    ".tag.limit.under{transform:translateY(15%)}\n"
    "svg path{fill:none;vector-effect:non-scaling-stroke}\n"
    ".line{stroke:var(--line);stroke-width:1.6;stroke-linejoin:round;"
    "stroke-linecap:round}.line.second{stroke:var(--second)}\n"
    ".grid{stroke:var(--grid);stroke-width:1}"
    ".limit{stroke:var(--muted);stroke-width:1.2;stroke-dasharray:5 4}"
    ".at{stroke:var(--error);stroke-width:1.4}\n"
    ".held{fill:var(--held)}rect.bad{fill:var(--bad)}\n"
    ".spark{display:block;width:clamp(5rem,14vw,9rem);height:1.5rem}\n",
    /* tables */
    ".wide{overflow-x:auto;margin-top:.7rem}\n"
    "table{border-collapse:collapse;width:100%;font-size:.88rem}\n"
    "th{font-weight:500;text-align:left;font-size:.82rem;vertical-align:bottom}\n"
    "th,td{padding:.2rem .9rem .2rem 0;border-bottom:1px solid var(--rule)}\n"
    "td:first-child code{overflow-wrap:normal;white-space:nowrap}\n"
    ".n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    "td:last-child,th:last-child{padding-right:.2rem}\n"
    "tr.found td:first-child{box-shadow:inset .2rem 0 var(--error);padding-left:.6rem}\n"
    ".rules{padding:0;margin:0 0 1rem;list-style:none;columns:2 20rem;column-gap:2rem;"
    "font-size:.92rem}\n"
    ".rules li{break-inside:avoid;padding:.12rem 0}.rules b{font-weight:600}"
    ".rules span{color:var(--muted)}em{font-style:normal;color:var(--error)}\n"
    "#rules h3{font-size:.95rem}\n",
    /* narrow, and on paper */
    "@media (max-width:40rem){.frame{grid-template-columns:3.2rem 1fr}"
    ".ys,.area{height:9rem}.card,.verdict,.when{padding:.9rem}"
    ".when a{grid-template-columns:1fr 4.6rem;row-gap:0}"
    ".when .lane{grid-column:1/-1;grid-row:2}}\n"
    "@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--muted:#444;--rule:#bbb;"
    "--line:#124b8a;--second:#9a4312;--error:#a01218;--warning:#7a4500;--note:#124b8a;"
    "--sound:#0c5a2e;--wash:#f1f1f1;--held:#a0121814;--bad:#a012182e;--grid:#e4e4e4}"
    "body{max-width:none;padding:0;font-size:10pt}.wide{overflow:visible}details{display:"
    "none}"
    ".ys,.area{height:7rem}.card{margin-top:.7rem;padding:.7rem "
    "1rem}.part{break-after:avoid}"
    "*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}\n",
    NULL,
};
