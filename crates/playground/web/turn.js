// A query and a key, turned pair by pair to their positions.
import { number, slider, time } from './figure.js';
import { drawing, shape, text } from './draw.js';

const PAIRS = 4;
const RADIUS = 56;
const FAR = RADIUS + 14; // of names

/** An arrow from the middle of a dial, and its name a little to one `side` of its tip; y grows downwards on a screen. */
const arrow = (svg, [x, y], [right, up], name, side) => {
    const [tipX, tipY] = [x + RADIUS * right, y - RADIUS * up];
    const colour = `var(--role-${name})`;
    svg.append(
        shape('line', { x1: x, y1: y, x2: tipX, y2: tipY, stroke: colour, 'stroke-width': 3 }),
        shape('circle', { cx: tipX, cy: tipY, r: 5, fill: colour }),
        shape('text', {
            x: x + FAR * (right - side * up), y: y - FAR * (up + side * right), dy: '0.35em', 'text-anchor': 'middle', fill: colour,
            'font-family': 'KaTeX_Math, serif', 'font-style': 'italic', 'font-size': '1.1em',
        }, name),
    );
};

/** A row between two positions: each pair turns evenly from one to the other. At a position it is the crate's, to the last digit, in which browsers' sines differ. */
const between = (attention, position) => {
    if (Number.isInteger(position)) {
        return attention.turned_row(position, PAIRS);
    }
    const [from, to] = [Math.floor(position), Math.ceil(position)].map(at => attention.turned_row(at, PAIRS));
    return from.map((_, i) => {
        const pair = i - i % 2;
        const angle = row => Math.atan2(row[pair + 1], row[pair]);
        const turn = (angle(to) - angle(from) + 3 * Math.PI) % (2 * Math.PI) - Math.PI;
        const at = angle(from) + turn * (position % 1);
        return i % 2 ? Math.sin(at) : Math.cos(at);
    });
};

export default attention => ({
    controls: [
        slider('query', 'position of the query', 0, 99, 1, 9, 0),
        slider('key', 'position of the key', 0, 99, 1, 6, 0),
        time('passed', 'both move on by', 25, 0, { seconds: 25 }),
    ],
    draw({ query, key, passed }) {
        const places = [query, key].map(position => position + passed);
        const [q, k] = places.map(place => between(attention, place));
        const svg = drawing(640, 200, 'A query and a key, turned to their positions, pair by pair');
        let sum = 0;
        for (let pair = 0; pair < PAIRS; pair += 1) {
            const middle = [80 + 160 * pair, 80];
            const of = row => [row[2 * pair], row[2 * pair + 1]];
            const product = of(q)[0] * of(k)[0] + of(q)[1] * of(k)[1];
            sum += product;
            svg.append(shape('circle', { cx: middle[0], cy: middle[1], r: RADIUS, fill: 'none', stroke: 'var(--fig-muted)' }));
            // Where both point the same way, their names stand side by side.
            const side = of(k)[0] * of(q)[1] < of(k)[1] * of(q)[0] ? -0.12 : 0.12;
            arrow(svg, middle, of(k), 'k', -side);
            arrow(svg, middle, of(q), 'q', side);
            svg.append(text(middle[0], 180, `pair ${pair + 1}: ${number(product, 2)}`));
        }
        return {
            svg,
            says: `Query at ${Math.floor(places[0])}, key at ${Math.floor(places[1])}: ${Math.abs(query - key)} apart. The products of the pairs sum to ${number(sum, 2)}.`,
        };
    },
});
