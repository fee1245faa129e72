// Who has the tensor cores when, as planned: one consumer or two, with a softmax as long as you like. The same clock runs for all plans.
import { number, slider, time } from './figure.js';
import { drawing, shape, text } from './draw.js';

const PLANS = [
    ['one consumer, in order', 1, false], ['one consumer, its softmax beside its own output', 1, true],
    ['two consumers that alternate', 2, false], ['two consumers, with both overlaps', 2, true],
];
const [LEFT, WIDTH, CLOCKS, ROW] = [104, 320, 6000, 25];

export default attention => ({
    controls: [
        time('clock', 'clock', CLOCKS, 3000, { seconds: 15, stop: 250 }),
        slider('softmax', `softmax in clocks, and ${attention.PlannedWork.correction()} for the correction`, 320, 2432, 32, 832, 0),
    ],
    draw({ clock, softmax }) {
        const svg = drawing(480, 452, 'The time-lines of four plans, up to a clock');
        const x = clock => LEFT + WIDTH * clock / CLOCKS;
        let top = 6;
        const shares = [];
        for (const [name, consumers, overlap] of PLANS) {
            svg.append(text(0, top + 8, name, 'start'));
            const rows = ['tensor cores', ...Array(consumers).fill('softmax')];
            rows.forEach((row, r) => svg.append(text(LEFT - 8, top + 32 + ROW * r, row, 'end', 'var(--fig-muted)')));
            let worked = 0;
            for (const { work, consumer, tile, from, to } of attention.PlannedWork.plan(consumers, overlap, softmax)) {
                if (from >= CLOCKS) {
                    continue;
                }
                const y = top + 21 + ROW * (work === 1 ? 1 + consumer : 0);
                const end = Math.min(to, CLOCKS);
                const now = Math.min(Math.max(clock, from), end);
                worked += work === 1 ? 0 : now - from;
                const box = (start, width, attributes) => svg.append(shape('rect', {
                    x: x(start) + 0.5, y, width: Math.max(width - 1, 0), height: ROW - 4, rx: 2, ...attributes,
                }));
                const colour = `var(--fig-${1 + consumer})`;
                box(from, x(now) - x(from), { fill: colour, 'fill-opacity': 0.3 });
                box(from, x(end) - x(from), { fill: 'none', stroke: colour, 'stroke-width': from <= clock ? 2 : 1, 'stroke-opacity': from <= clock ? 1 : 0.5 });
                if (x(end) - x(from) > 22) {
                    svg.append(text((x(from) + x(end)) / 2, y + 10.5, `${'SAO'[work]}${'₀₁₂₃₄₅₆₇₈₉'[tile]}`));
                }
            }
            const share = clock === 0 ? 0 : worked / clock;
            shares.push(share);
            svg.append(text(480, top + 32, `${number(100 * share, 0)} %`, 'end'));
            top += 34 + ROW * rows.length;
        }
        svg.append(shape('path', { d: `M${LEFT},${top}H${LEFT + WIDTH}`, stroke: 'var(--fig-muted)' }));
        for (let tick = 0; tick <= CLOCKS; tick += 2000) {
            svg.append(shape('path', { d: `M${x(tick)},${top}v5`, stroke: 'var(--fig-muted)' }), text(x(tick), top + 16, String(tick)));
        }
        svg.append(
            text(480, top + 16, 'clock', 'end'), text(480, 14, 'busy', 'end', 'var(--fig-muted)'),
            shape('line', { x1: x(clock), x2: x(clock), y1: 18, y2: top, stroke: 'var(--fig-fg)', 'stroke-width': 2 }),
        );
        const busy = PLANS.map(([, consumers, overlap]) => attention.PlannedWork.busy(consumers, overlap, softmax));
        const told = busy.map(share => `${number(100 * share, 0)} %`);
        return {
            svg,
            says: `A softmax of ${softmax} clocks. Once they run, the tensor cores are busy ${told[0]} of the time in order, ${told[1]} with the first `
                + `overlap, ${told[2]} with two consumers, and ${told[3]} with both.${attention.PlannedWork.softmaxBusy(softmax) > 1
                    ? ' But the softmaxes of two consumers share their units, so much of theirs has to be waiting.' : ''}`,
        };
    },
});
