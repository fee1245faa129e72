// Masks over the running example, and a token that is poked: which outputs move?
import { choice, number, time } from './figure.js';
import { bars, drawing, entries, heatMap, shape, text } from './draw.js';

const CELL = 45;

export default attention => {
    const sentence = attention.Sentence.river();
    const { tokens, x } = sentence;
    const [wQ, wK, wV] = attention.projections();
    const made = [
        attention.Mask.none(),
        attention.Mask.causal(),
        attention.Mask.window(3),
        attention.Mask.padding(3, 6),
        attention.Mask.causal().and(attention.Mask.padding(3, 6)),
    ];
    const run = (matrix, mask) => {
        const [q, k, v] = [wQ, wK, wV].map(w => attention.project(matrix, w));
        return new attention.Attention(q, k, v, made[mask]);
    };
    return {
        controls: [
            choice('mask', 'mask', ['none', 'causal', 'window of 3', 'padding: 3 real tokens', 'causal and padding'], 1),
            choice('token', 'poked token', tokens.map((token, i) => `${i + 1}. ${token}`), 5),
            time('poke', 'how hard', 3, 0, { seconds: 5, stop: 0.5 }),
        ],
        draw({ mask, token, poke }) {
            const numbers = x.entries;
            for (let j = 0; j < x.columns; j += 1) {
                numbers[token * x.columns + j] += poke;
            }
            const poked = new attention.Matrix(x.rows, x.columns, numbers);
            const [before, after] = [run(x, mask), run(poked, mask)];
            const [old, now] = [before.output, after.output].map(entries);
            const moves = tokens.map((_, i) => Math.hypot(now(i, 0) - old(i, 0), now(i, 1) - old(i, 1)));
            const svg = drawing(480, 340, 'Weights under a mask, and how far each output moves');
            svg.append(text(66, 12, 'weights', 'start'), text(336, 12, 'outputs move by', 'start'));
            // What the mask hides is an empty frame.
            const masked = after.masked;
            const shown = after.weights.entries.map((weight, l) => Number.isFinite(masked.entries[l]) ? weight : NaN);
            const matrix = new attention.Matrix(6, 6, shown);
            heatMap(svg, { left: 60, top: 52, rows: tokens, columns: tokens, matrix, full: 0.75, cell: CELL });
            // The poked token is a query of its row, and a key of its column.
            const frame = (places, colour) => svg.append(shape('rect', {
                ...places, fill: 'none', stroke: `var(--role-${colour})`, 'stroke-width': 2.5, 'pointer-events': 'none',
            }));
            frame({ x: 58.5, y: 50.5 + CELL * token, width: 6 * CELL + 1, height: CELL + 1 }, 'q');
            frame({ x: 58.5 + CELL * token, y: 50.5, width: CELL + 1, height: 6 * CELL + 1 }, 'k');
            bars(svg, {
                left: 336, top: 52, width: 90, row: CELL, most: Math.max(...moves, 0.01),
                values: moves, digits: 3, colour: () => 'var(--fig-2)',
            });
            const moved = tokens.map((word, i) => `${i + 1}. ${word}`).filter((_, i) => moves[i] > 0);
            return {
                svg,
                says: poke === 0
                    ? `Nothing is poked. Choose how hard to poke “${tokens[token]}”.`
                    : `“${tokens[token]}” is poked by ${number(poke, 1)}. ${moved.length
                        ? `These outputs move: ${moved.join(', ')}.` : 'No output moves.'}`,
            };
        },
    };
};
