// Who has the tensor cores when, as planned: one consumer or two, with a softmax as long as you like. The same clock runs for all plans.
import { number, remembered, slider, time } from './figure.js';
import { drawing, shape, text } from './draw.js';

const PLANS = [
    ['one consumer, in order', 1, false], ['one consumer, its softmax beside its own output', 1, true],
    ['two consumers that alternate', 2, false], ['two consumers, with both overlaps', 2, true],
];
const [LEFT, WIDTH, CLOCKS, ROW] = [104, 320, 6000, 25];

// What is asked of the module for each number of a bar takes longer than a frame has.
const plansOf = attention => remembered(softmax => PLANS.map(([name, consumers, overlap]) => ({
    name,
    consumers,
    busy: attention.PlannedWork.busy(consumers, overlap, softmax),
    bars: attention.PlannedWork.plan(consumers, overlap, softmax)
        .map(({ work, consumer, tile, from, to }) => ({ work, consumer, tile, from, to })).filter(({ from }) => from < CLOCKS),
})));

export default (attention, _, plans = plansOf(attention)) => ({
    controls: [
        time('clock', 'clock', CLOCKS, 3000, { seconds: 15, stop: 250 }),
        slider('softmax', `softmax in clocks, and ${attention.PlannedWork.correction()} for the correction`, 320, 2432, 32, 832, 0),
    ],
    draw({ clock, softmax }) {
        const svg = drawing(480, 452, 'The time-lines of four plans, up to a clock');
        const x = clock => LEFT + WIDTH * clock / CLOCKS;
        let top = 6;
        for (const { name, consumers, bars } of plans(softmax)) {
            svg.append(text(0, top + 8, name, 'start'));
            const rows = ['tensor cores', ...Array(consumers).fill('softmax')];
            rows.forEach((row, r) => svg.append(text(LEFT - 8, top + 32 + ROW * r, row, 'end', 'var(--fig-muted)')));
            let worked = 0;
            // A path for all bars that look alike: what is done of each, and their outlines, begun or not.
            const paths = new Map();
            const add = (consumer, kind, from, to, y) => {
                const key = JSON.stringify([consumer, kind]);
                paths.set(key, `${paths.get(key) ?? ''}M${(x(from) + 0.5).toFixed(1)},${y}h${Math.max(x(to) - x(from) - 1, 0).toFixed(1)}v${ROW - 4}H${(x(from) + 0.5).toFixed(1)}z`);
            };
            for (const { work, consumer, tile, from, to } of bars) {
                const y = top + 21 + ROW * (work === 1 ? 1 + consumer : 0);
                const end = Math.min(to, CLOCKS);
                const now = Math.min(Math.max(clock, from), end);
                worked += work === 1 ? 0 : now - from;
                add(consumer, 'done', from, now, y);
                add(consumer, from <= clock ? 'begun' : 'planned', from, end, y);
                if (x(end) - x(from) > 22) {
                    svg.append(text((x(from) + x(end)) / 2, y + 10.5, `${'SAO'[work]}${'₀₁₂₃₄₅₆₇₈₉'[tile]}`));
                }
            }
            for (const [key, d] of paths) {
                const [consumer, kind] = JSON.parse(key);
                const colour = `var(--fig-${1 + consumer})`;
                svg.append(shape('path', { d, ...{
                    done: { fill: colour, 'fill-opacity': 0.3 },
                    begun: { fill: 'none', stroke: colour, 'stroke-width': 2 },
                    planned: { fill: 'none', stroke: colour, 'stroke-opacity': 0.5 },
                }[kind] }));
            }
            const share = clock === 0 ? 0 : worked / clock;
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
        const told = plans(softmax).map(({ busy: share }) => `${number(100 * share, 0)} %`);
        return {
            svg,
            says: `A softmax of ${softmax} clocks. Once they run, the tensor cores are busy ${told[0]} of the time in order, ${told[1]} with the first `
                + `overlap, ${told[2]} with two consumers, and ${told[3]} with both.${attention.PlannedWork.softmaxBusy(softmax) > 1
                    ? ' But the softmaxes of two consumers share their units, so much of theirs has to be waiting.' : ''}`,
        };
    },
});
