// Random scores, wide or narrow, divided by this or that: how sharp are the weights?
import { choice, number, remembered, slider, time } from './figure.js';
import { bars, drawing, shape, text } from './draw.js';

const DIVISORS = ['1', '√d', 'd'];
const KEYS = 8;
// A bar of this length is full, for each divisor.
const FULL = [64, 3, 1];
// Numbers of scores stand before and behind their bars, so the labels end well before them.
const SCORES = { left: 130, top: 28, width: 190, row: 34, labelsEnd: 60 };
const ZERO = SCORES.left + SCORES.width / 2;
const WEIGHTS = 410; // where their bars begin

export default attention => {
    const productsOf = remembered((d, draw) => attention.random_products(KEYS, d, BigInt(draw)));
    return {
        controls: [
            time('doublings', 'width: two to the', 10, 6, { seconds: 12, stop: 0.5 }),
            choice('divisor', 'divided by', DIVISORS, 0),
            slider('draw', 'number of the draw', 1, 50, 1, 1, 0),
        ],
        draw({ doublings, divisor, draw }) {
            const d = Math.round(2 ** doublings);
            const by = [1, Math.sqrt(d), d][divisor];
            const products = productsOf(d, draw);
            const scores = products.map(product => product / by);
            const weights = [...attention.softmax(scores)];
            const jacobian = attention.softmax_jacobian(scores).entries;
            const svg = drawing(620, 332, 'Random scores, their weights, and how weights respond');
            const most = FULL[divisor];
            const spread = Math.sqrt(d) / by;
            const shown = SCORES.width / 2 * Math.min(spread / most, 1);
            const end = SCORES.top + SCORES.row * KEYS;
            svg.append(
                text(ZERO, 14, 'scores'), text(WEIGHTS, 14, 'weights', 'start'),
                shape('rect', {
                    x: ZERO - shown, y: SCORES.top, width: 2 * shown, height: end - SCORES.top, fill: 'var(--fig-muted)', 'fill-opacity': 0.15,
                }),
                shape('line', { x1: ZERO, x2: ZERO, y1: SCORES.top, y2: end, stroke: 'var(--fig-muted)' }),
                text(ZERO, end + 14, `± √d / ${DIVISORS[divisor]} = ± ${number(spread, 2)}`),
            );
            bars(svg, {
                ...SCORES, most, labels: weights.map((_, j) => `key ${j + 1}`), values: [...scores], signed: true, colour: () => 'var(--fig-1)',
            });
            bars(svg, { ...SCORES, left: WEIGHTS, width: 150, most: 1, values: weights, digits: 3, colour: () => 'var(--fig-2)' });
            const largest = weights.indexOf(Math.max(...weights));
            const response = jacobian[largest * KEYS + largest];
            return {
                svg,
                says: `d = ${d}, divided by ${DIVISORS[divisor]}: the largest weight is ${number(weights[largest], 3)}, and it responds to `
                    + `its own score by ${number(response, 3)}.`,
            };
        },
    };
};
