#!/usr/bin/env python3
# predicted.py [--figure FILE.svg] TABLE.csv...: what tables of gcbench (--model, --choose, --algorithms all,-) say of a model: how far
# predictions are from what was measured, and how good its choice is.
#
# SPDX-License-Identifier: MIT
#
# The choice of an operation and size is the row without an algorithm. It is right if it takes at most CLOSE times as long as
# the fastest algorithm that was measured, or if their intervals overlap.
import csv, math, os, statistics, sys
from collections import defaultdict

CLOSE, SPREAD = 1.10, 1.20
MEDIAN_MOST, TENTH_MOST = 0.10, 0.30
RIGHT_LEAST, RIGHT_WHERE_IT_MATTERS = 0.90, 0.80


class Row:
    def __init__(self, line):
        self.what = line['operation'], int(line['bytes'])
        self.algorithm = line['algorithm']
        self.median, self.low, self.high = (float(line[k]) for k in ('median_s', 'low_s', 'high_s'))
        self.predicted = float(line['predicted_s']) if line['predicted_s'] else None

    def error(self):
        return self.predicted / self.median - 1


def read(path):
    with open(path) as f:
        return [Row(line) for line in csv.DictReader(l for i, l in enumerate(f) if i == 0 or not l.startswith('operation,'))]


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(q * len(values)) - 1)]


def tell_errors(name, rows):
    wrong = [abs(r.error()) for r in rows if r.predicted is not None and r.algorithm]
    if not wrong:
        return print(f'{name}: no predictions')
    median, tenth = statistics.median(wrong), quantile(wrong, 0.9)
    fine = median <= MEDIAN_MOST and tenth <= TENTH_MOST
    print(f'{name}: {len(wrong)} rows, error: median {median:.1%}, 90th percentile {tenth:.1%}, worst {max(wrong):.0%}: '
          + ('pass' if fine else 'FALLS SHORT'))


def choices(rows):
    """How the choice fares for each operation and size: (what, ratio to the best, ties with it, do algorithms differ)."""
    by = defaultdict(list)
    for r in rows:
        by[r.what].append(r)
    for what, some in by.items():
        pool, chosen = [r for r in some if r.algorithm], [r for r in some if not r.algorithm]
        if len(pool) < 2 or not chosen:
            continue
        best = min(pool, key=lambda r: r.median)
        ties = chosen[0].low <= best.high
        yield what, chosen[0].median / best.median, ties, statistics.median(r.median for r in pool) / best.median > SPREAD, best


def tell_choices(name, all_of, each):
    if not all_of:
        return print(f'{name}: no choices')
    good = [ratio <= CLOSE or ties for _, ratio, ties, _, _ in all_of]
    where = [g for g, (_, _, _, matters, _) in zip(good, all_of) if matters]
    share, where_share = sum(good) / len(good), sum(where) / len(where) if where else 1
    fine = share >= RIGHT_LEAST and where_share >= RIGHT_WHERE_IT_MATTERS
    print(f'{name}: choice within {CLOSE:.2f} of the best in {share:.0%} of {len(good)}, in {where_share:.0%} of {len(where)} where '
          f'best and median differ by {SPREAD - 1:.0%}: ' + ('pass' if fine else 'FALLS SHORT'))
    for g, ((operation, size), ratio, _, _, best) in zip(good, all_of):
        if each and not g:
            print(f'    {operation} {size}: {ratio:.2f} times {best.algorithm}')


def tell_worst(rows, n=8):
    for r in sorted((r for r in rows if r.predicted is not None and r.algorithm), key=lambda r: -abs(r.error()))[:n]:
        print(f'    {r.what[0]} {r.what[1]} by {r.algorithm}: {r.median * 1e3:.2f} ms, predicted {r.predicted * 1e3:.2f} ({r.error():+.0%})')


# ---- the picture ----
SIDE, LEFT, TOP = 480, 70, 40
INK = ['#1f77b4', '#d95f02', '#1b9e77', '#7570b3']


def draw(path, tables):
    points = [(i, r) for i, (_, rows) in enumerate(tables) for r in rows if r.predicted and r.algorithm]
    if not points:
        sys.exit('predicted.py: nothing to draw')
    low = math.floor(math.log10(min(min(r.median, r.predicted) for _, r in points)))
    high = max(low + 1, math.ceil(math.log10(max(max(r.median, r.predicted) for _, r in points))))
    at = lambda seconds: SIDE * (math.log10(seconds) - low) / (high - low)
    x, y = (lambda s: LEFT + at(s)), (lambda s: TOP + SIDE - at(s))
    unit = lambda e: {-6: '1 us', -5: '10 us', -4: '100 us', -3: '1 ms', -2: '10 ms', -1: '100 ms', 0: '1 s', 1: '10 s', 2: '100 s'}.get(e, f'1e{e} s')
    line = lambda ax, ay, bx, by, style: f'<path d="M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}" {style}/>'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + SIDE + 170}" height="{TOP + SIDE + 60}" font-family="sans-serif" font-size="13">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">Collectives: predicted over measured</text>']
    for e in range(low, high + 1):
        s = 10.0 ** e
        out += [line(x(s), TOP, x(s), TOP + SIDE, 'stroke="#ddd"'), line(LEFT, y(s), LEFT + SIDE, y(s), 'stroke="#ddd"'),
                f'<text x="{x(s):.1f}" y="{TOP + SIDE + 20}" text-anchor="middle">{unit(e)}</text>',
                f'<text x="{LEFT - 8}" y="{y(s) + 4:.1f}" text-anchor="end">{unit(e)}</text>']
    least, most = 10.0 ** low, 10.0 ** high
    out.append(line(x(least), y(least), x(most), y(most), 'stroke="#888"'))
    for f in (1.3, 1 / 1.3):
        a, b = max(least, least / f), min(most, most / f)
        out.append(line(x(a), y(a * f), x(b), y(b * f), 'stroke="#bbb" stroke-dasharray="4 4"'))
    out += [f'<circle cx="{x(r.median):.1f}" cy="{y(r.predicted):.1f}" r="3" fill="{INK[i % 4]}" fill-opacity="0.5"/>' for i, r in points]
    for i, (name, _) in enumerate(tables):
        out.append(f'<circle cx="{LEFT + SIDE + 24}" cy="{TOP + 20 + 22 * i}" r="4" fill="{INK[i % 4]}"/>'
                   f'<text x="{LEFT + SIDE + 36}" y="{TOP + 24 + 22 * i}">{name}</text>')
    out += [f'<text x="{LEFT + SIDE + 24}" y="{TOP + 30 + 22 * len(tables)}" fill="#666">dashes: 30 %</text>',
            f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 44}" text-anchor="middle">measured</text>',
            f'<text x="18" y="{TOP + SIDE / 2}" text-anchor="middle" transform="rotate(-90 18 {TOP + SIDE / 2})">predicted</text>', '</svg>']
    with open(path, 'w') as f:
        f.write('\n'.join(out) + '\n')


def main(words):
    figure = None
    if words[:1] == ['--figure'] and len(words) > 1:
        figure, words = words[1], words[2:]
    if not words:
        sys.exit('usage: predicted.py [--figure FILE.svg] TABLE.csv...')
    tables = [(os.path.basename(p).removesuffix('.csv').replace('-', ' '), read(p)) for p in words]
    chosen = [list(choices(rows)) for _, rows in tables]
    for (name, rows), choice in zip(tables, chosen):
        tell_errors(name, rows)
        tell_worst(rows)
        tell_choices(name, choice, True)
    tell_errors('together', [r for _, rows in tables for r in rows])
    tell_choices('together', [c for choice in chosen for c in choice], False)
    if figure:
        draw(figure, tables)


if __name__ == '__main__':
    main(sys.argv[1:])
