// A query and a key, turned pair by pair to their positions.
import { number, slider } from './figure.js';
import { drawing, shape, text } from './draw.js';

const PAIRS = 4;
const RADIUS = 56;

/** An arrow from the middle of a dial; y grows downwards on a screen. */
const arrow = (svg, [x, y], [right, up], colour) => {
    const [tipX, tipY] = [x + RADIUS * right, y - RADIUS * up];
    svg.append(
        shape('line', { x1: x, y1: y, x2: tipX, y2: tipY, stroke: colour, 'stroke-width': 3 }),
        shape('circle', { cx: tipX, cy: tipY, r: 5, fill: colour }),
    );
};

export default attention => ({
    controls: [
        slider('query', 'position of the query', 0, 99, 1, 9, 0),
        slider('key', 'position of the key', 0, 99, 1, 6, 0),
    ],
    draw({ query, key }) {
        const [q, k] = [query, key].map(position => attention.turned_row(position, PAIRS));
        const svg = drawing(640, 180, 'A query and a key, turned to their positions, pair by pair');
        let sum = 0;
        for (let pair = 0; pair < PAIRS; pair += 1) {
            const middle = [80 + 160 * pair, 68];
            const of = row => [row[2 * pair], row[2 * pair + 1]];
            const product = of(q)[0] * of(k)[0] + of(q)[1] * of(k)[1];
            sum += product;
            svg.append(shape('circle', { cx: middle[0], cy: middle[1], r: RADIUS, fill: 'none', stroke: 'var(--fig-muted)' }));
            arrow(svg, middle, of(k), 'var(--fig-2)');
            arrow(svg, middle, of(q), 'var(--fig-1)');
            svg.append(text(middle[0], 150, `product ${number(product, 2)}`));
        }
        return {
            svg,
            says: `Query at ${query}, key at ${key}: ${Math.abs(query - key)} apart. The products of the pairs sum to ${number(sum, 2)}.`,
        };
    },
});
