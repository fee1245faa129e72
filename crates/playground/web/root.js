// Random scores, wide or narrow, divided by this or that: how sharp are the weights?
import { choice, number, slider } from './figure.js';
import { bars, drawing, text } from './draw.js';

const WIDTHS = [4, 16, 64, 256, 1024];
const DIVISORS = ['1', '√d', 'd'];
const KEYS = 8;

export default attention => ({
    controls: [
        choice('width', 'width d', WIDTHS.map(String), 2),
        choice('divisor', 'divided by', DIVISORS, 0),
        slider('draw', 'number of the draw', 1, 50, 1, 1, 0),
    ],
    draw({ width, divisor, draw }) {
        const d = WIDTHS[width];
        const by = [1, Math.sqrt(d), d][divisor];
        const products = attention.random_products(KEYS, d, BigInt(draw));
        const scores = products.map(product => product / by);
        const weights = [...attention.softmax(scores)];
        const jacobian = attention.softmax_jacobian(scores).entries;
        const svg = drawing(620, 320, 'Random scores, their weights, and how weights respond');
        svg.append(text(70, 14, 'scores', 'start'), text(360, 14, 'weights', 'start'));
        const labels = weights.map((_, j) => `key ${j + 1}`);
        const most = Math.max(...scores.map(Math.abs), 1);
        bars(svg, {
            left: 70, top: 28, width: 190, row: 34, most, labels, values: [...scores], signed: true, colour: () => 'var(--fig-1)',
        });
        bars(svg, {
            left: 360, top: 28, width: 190, row: 34, most: 1, labels: labels.map(() => ''), values: weights, digits: 3,
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
});
