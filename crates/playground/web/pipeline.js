// Who has the tensor cores when, as planned: one consumer or two, with a softmax as long as you like. The same clock runs for all plans.
import { number, remembered, slider, time } from './figure.js';
import { drawing, formula, shape, text } from './draw.js';

const PLANS = [
    ['one consumer, in order', 1, false], ['one consumer, softmax beside its output', 1, true],
    ['two consumers', 2, false], ['two consumers, each with that overlap', 2, true],
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
        slider('softmax', 'clocks of a softmax', 320, 2432, 32, 832, 0),
    ],
    draw({ clock, softmax }) {
        const svg = drawing(480, 474, 'The time-lines of four plans, up to a clock');
        const x = clock => LEFT + WIDTH * clock / CLOCKS;
        svg.append(formula(0, 10, 'S: scores, A: softmax, O: output; grey: the tensor cores wait', 'start'));
        let top = 28;
        const soFar = [];
        for (const { name, consumers, bars, busy } of plans(softmax)) {
            const percent = share => `${number(100 * share, 0)} %`;
            svg.append(text(0, top + 8, `${name}: ${percent(busy)} in the long run`, 'start'));
            const rows = ['tensor cores', ...['consumer 1', 'consumer 2'].slice(0, consumers)];
            rows.forEach((row, r) => svg.append(text(LEFT - 8, top + 32 + ROW * r, row, 'end')));
            // Where the tensor cores have waited, the ground shows.
            svg.append(shape('rect', {
                x: LEFT, y: top + 21, width: x(clock) - LEFT, height: ROW - 4, fill: 'var(--fig-muted)', 'fill-opacity': 0.35,
            }));
            let worked = 0;
            const labels = [];
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
                    labels.push(text((x(from) + x(end)) / 2, y + 10.5, `${'SAO'[work]}${'₀₁₂₃₄₅₆₇₈₉'[tile]}`));
                }
            }
            for (const [key, d] of paths) {
                const [consumer, kind] = JSON.parse(key);
                const colour = `var(--fig-${1 + consumer})`;
                if (kind === 'done') {
                    svg.append(shape('path', { d, fill: 'var(--fig-bg)' }));
                }
                svg.append(shape('path', { d, ...{
                    done: { fill: colour, 'fill-opacity': 0.3 },
                    begun: { fill: 'none', stroke: colour, 'stroke-width': 2 },
                    planned: { fill: 'none', stroke: colour, 'stroke-opacity': 0.7 },
                }[kind] }));
            }
            svg.append(...labels);
            const share = clock === 0 ? 0 : worked / clock;
            soFar.push(percent(share));
            svg.append(text(480, top + 32, percent(share), 'end'), shape('path', {
                d: `M${x(clock)},${top + 18}v${ROW * rows.length + 4}`, stroke: 'var(--fig-fg)', 'stroke-width': 1.5,
            }));
            top += 34 + ROW * rows.length;
        }
        svg.append(shape('path', { d: `M${LEFT},${top}H${LEFT + WIDTH}`, stroke: 'var(--fig-muted)' }));
        for (let tick = 0; tick < CLOCKS; tick += 2000) {
            svg.append(shape('path', { d: `M${x(tick)},${top}v5`, stroke: 'var(--fig-muted)' }), text(x(tick), top + 16, String(tick)));
        }
        svg.append(text(480, top + 16, 'clocks', 'end'), text(480, 36, 'so far', 'end'));
        return {
            svg,
            says: `Clock ${clock}: so far, the tensor cores have been busy ${soFar.slice(0, 3).join(', ')} and ${soFar[3]} of the time.${
                attention.PlannedWork.softmaxBusy(softmax) > 1
                    ? ' Two such softmaxes are more than their units can do, since both consumers share them; some of it has to be waiting.' : ''}`,
        };
    },
});
