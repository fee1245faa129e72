// Random scores, wide or narrow, divided by this or that: how sharp are the weights?
import { choice, number, remembered, slider, time } from './figure.js';
import { bars, drawing, shape, text } from './draw.js';

const DIVISORS = ['1', '√d', 'd'];
const KEYS = 8;
// A bar of this length is full, for each divisor.
const FULL = [64, 3, 1];

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
            svg.append(text(225, 14, 'scores'), text(410, 14, 'weights', 'start'));
            const labels = weights.map((_, j) => `key ${j + 1}`);
            const most = FULL[divisor];
            // How far scores are from 0, on average over many draws.
            const spread = 95 * Math.min(Math.sqrt(d) / by / most, 1);
            svg.append(
                shape('rect', { x: 225 - spread, y: 28, width: 2 * spread, height: 34 * KEYS, fill: 'var(--fig-muted)', 'fill-opacity': 0.15 }),
                shape('line', { x1: 225, x2: 225, y1: 28, y2: 28 + 34 * KEYS, stroke: 'var(--fig-muted)' }),
                text(225, 28 + 34 * KEYS + 14, `± √d / ${DIVISORS[divisor]} = ± ${number(Math.sqrt(d) / by, 2)}`),
            );
            labels.forEach((label, j) => svg.append(text(60, 28 + 34 * j + 17, label, 'end')));
            bars(svg, {
                left: 130, top: 28, width: 190, row: 34, most, labels: [], values: [...scores], signed: true, colour: () => 'var(--fig-1)',
            });
            bars(svg, {
                left: 410, top: 28, width: 150, row: 34, most: 1, labels: labels.map(() => ''), values: weights, digits: 3,
                colour: () => 'var(--fig-2)',
            });
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
