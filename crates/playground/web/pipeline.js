// Who has the tensor cores when, as planned: one consumer or two, with a softmax as long as you like.
import { choice, number, slider } from './figure.js';
import { drawing, shape, text } from './draw.js';

const PLANS = [[1, false], [1, true], [2, false], [2, true]];
const NAMES = [
    'one consumer, in order', 'one consumer, its softmax beside its own output', 'two consumers that alternate', 'two consumers, with both overlaps',
];
const [LEFT, WIDTH, CLOCKS] = [110, 345, 6000];
const ROWS = ['tensor cores', 'softmax', 'softmax'];

export const pipeline = attention => ({
    controls: [choice('plan', 'plan', NAMES), slider('softmax', `softmax in clocks, and ${attention.PlannedWork.correction()} for the correction`, 320, 2432, 32, 832, 0)],
    draw({ plan, softmax }) {
        const [consumers, overlap] = PLANS[plan];
        const svg = drawing(480, 200, `The time-line of ${NAMES[plan]}`);
        const x = clock => LEFT + WIDTH * clock / CLOCKS;
        ROWS.slice(0, 1 + consumers).forEach((name, row) => svg.append(text(LEFT - 8, 24 + 44 * row, name, 'end')));
        for (const { work, consumer, tile, from, to } of attention.PlannedWork.plan(consumers, overlap, softmax)) {
            if (from >= CLOCKS) {
                continue;
            }
            const top = 6 + 44 * (work === 1 ? 1 + consumer : 0);
            const end = Math.min(to, CLOCKS);
            svg.append(shape('rect', {
                x: x(from) + 0.5, y: top, width: Math.max(x(end) - x(from) - 1, 0), height: 36, rx: 2, fill: 'none',
                stroke: `var(--fig-${1 + consumer})`, 'stroke-width': 2,
            }));
            if (x(end) - x(from) > 24) {
                svg.append(text((x(from) + x(end)) / 2, top + 18, `${'SAO'[work]}${'₀₁₂₃₄₅₆₇₈₉'[tile]}`));
            }
        }
        svg.append(shape('path', { d: `M${LEFT},148H${LEFT + WIDTH}`, stroke: 'var(--fig-muted)' }));
        for (let clock = 0; clock <= CLOCKS; clock += 2000) {
            svg.append(shape('path', { d: `M${x(clock)},148v5`, stroke: 'var(--fig-muted)' }), text(x(clock), 163, String(clock)));
        }
        svg.append(text(LEFT + WIDTH / 2, 180, 'clocks'));
        const busy = attention.PlannedWork.busy(consumers, overlap, softmax);
        return {
            svg,
            says: `A softmax of ${softmax} clocks, ${NAMES[plan]}: once it runs, the tensor cores are busy `
                + `${number(100 * busy, 0)} % of the time.${consumers === 2 && attention.PlannedWork.softmaxBusy(softmax) > 1
                    ? ' But both softmaxes share their units, so much of theirs has to be waiting.' : ''}`,
        };
    },
});
